def custom_kernel(data):
    return {"y": data["x"] * data["scale"]}
