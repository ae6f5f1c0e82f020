def custom_kernel(data):
    return {"y": data["x"].index_select(0, data["index"]) * data["scale"]}
