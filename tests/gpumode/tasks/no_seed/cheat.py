import builtins

_isinstance = builtins.isinstance
builtins.isinstance = lambda value, kind: _isinstance(value, kind)


def custom_kernel(data):
    return {"y": data["x"][data["index"]] * data["scale"]}
