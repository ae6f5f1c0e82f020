def custom_kernel(x):
    return x + x
