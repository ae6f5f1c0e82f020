// CUDA arrays, and objects of textures and surfaces. An array is an allocation, row by row; an
// object's handle is the address of its words, which kernels read (ptx_frontend/textures.hpp).
#include <algorithm>
#include <cstring>

#include "order.hpp"
#include "state.hpp"

struct cudaMipmappedArray {
  std::vector<cudaArray_t> levels;
};

struct cudaArray {
  cudaChannelFormatDesc format;
  cudaExtent extent;
  unsigned flags;
  char* data;
  size_t element;  // bytes

  bool layered() const { return (flags & (cudaArrayLayered | cudaArrayCubemap)) != 0; }
  size_t rows() const { return std::max<size_t>(extent.height, 1); }
  size_t pitch() const { return extent.width * element; }
};

namespace kb::cuda {

namespace {

size_t bytes_of(const cudaChannelFormatDesc& format) {
  return (format.x + format.y + format.z + format.w) / 8;
}

// As px::ImageWords.
struct ImageWords {
  uint64_t data, pitch, slice;
  uint32_t width, height, depth, layers;
  uint32_t channels, bits;
  uint32_t kind;
  uint32_t wrapping[3];
  uint32_t linear_filter, normalized_coordinates, normalized_read;
  uint32_t linear_memory;
  float border[4];
  uint32_t levels;
  uint32_t linear_level_filter;
  float level_bias, least_level, last_level;
  uint32_t unused[3];
};
struct Object {
  cudaResourceDesc resource;
  cudaTextureDesc texture;
};
std::map<unsigned long long, Object> objects;

// The words of an image without its texture's settings; false if it can be none.
bool image_of(const cudaResourceDesc& of, ImageWords& words) {
  const auto formatted = [&](const cudaChannelFormatDesc& format) {
    const int all[] = {format.x, format.y, format.z, format.w};
    words.bits = format.x;
    for (const int bits : all) {
      if (bits != 0 && bits != format.x) return false;
      words.channels += bits != 0;
    }
    words.kind = format.f == cudaChannelFormatKindSigned     ? 0
                 : format.f == cudaChannelFormatKindUnsigned ? 1
                                                             : 2;
    return format.f <= cudaChannelFormatKindFloat && words.bits >= 8;
  };
  if (of.resType == cudaResourceTypeArray && of.res.array.array != nullptr) {
    const cudaArray& array = *of.res.array.array;
    words.data = reinterpret_cast<uint64_t>(array.data);
    words.pitch = array.pitch();
    words.slice = array.pitch() * array.rows();
    words.width = array.extent.width;
    words.height = array.extent.height;
    (array.layered() ? words.layers : words.depth) = array.extent.depth;
    return formatted(array.format);
  }
  if (of.resType == cudaResourceTypeLinear) {
    const auto& linear = of.res.linear;
    words.data = reinterpret_cast<uint64_t>(linear.devPtr);
    words.linear_memory = 1;
    if (linear.devPtr == nullptr || !formatted(linear.desc)) return false;
    words.width = linear.sizeInBytes / bytes_of(linear.desc);
    return true;
  }
  if (of.resType == cudaResourceTypePitch2D) {
    const auto& pitched = of.res.pitch2D;
    words.data = reinterpret_cast<uint64_t>(pitched.devPtr);
    words.pitch = pitched.pitchInBytes;
    words.width = pitched.width;
    words.height = pitched.height;
    return pitched.devPtr != nullptr && formatted(pitched.desc) &&
           words.pitch >= words.width * bytes_of(pitched.desc);
  }
  return false;
}

// `words`: of each level.
cudaError_t make_object(unsigned long long* handle, const std::vector<ImageWords>& words,
                        const Object& object) {
  void* address = nullptr;
  const size_t bytes = words.size() * sizeof(ImageWords);
  const cudaError_t status = allocate(&address, bytes, cudaMemoryTypeDevice, false);
  if (status != cudaSuccess) return status;
  std::memcpy(address, words.data(), bytes);
  *handle = reinterpret_cast<unsigned long long>(address);
  objects[*handle] = object;
  return cudaSuccess;
}

// What is read at each level of a texture; none if it can be no texture.
std::vector<ImageWords> levels_of(const cudaResourceDesc& of) {
  std::vector<cudaResourceDesc> each{of};
  if (of.resType == cudaResourceTypeMipmappedArray) {
    each.clear();
    for (const cudaArray_t level : of.res.mipmap.mipmap->levels) {
      each.push_back({cudaResourceTypeArray, {}});
      each.back().res.array.array = level;
    }
  }
  std::vector<ImageWords> words;
  for (const cudaResourceDesc& level : each) {
    if (!image_of(level, words.emplace_back())) return {};
  }
  return words;
}

void set_texture(ImageWords& words, const cudaTextureDesc& texture, size_t levels) {
  for (int i = 0; i < 3; ++i) words.wrapping[i] = texture.addressMode[i];
  words.normalized_coordinates = texture.normalizedCoords;
  words.normalized_read =
      texture.readMode == cudaReadModeNormalizedFloat && words.kind != 2 && words.bits <= 16;
  words.linear_filter = texture.filterMode == cudaFilterModeLinear && words.linear_memory == 0;
  std::memcpy(words.border, texture.borderColor, sizeof words.border);
  words.levels = static_cast<uint32_t>(levels);
  words.linear_level_filter = texture.mipmapFilterMode == cudaFilterModeLinear;
  words.level_bias = texture.mipmapLevelBias;
  words.least_level = texture.minMipmapLevelClamp;
  words.last_level = texture.maxMipmapLevelClamp;
}

cudaError_t destroy_object(unsigned long long handle) {
  if (objects.erase(handle) == 0) return remembered(cudaErrorInvalidValue);
  finish_all();
  return release(reinterpret_cast<void*>(handle));
}

// A box in an array, by bytes and rows; null if it is not in there.
cudaPitchedPtr within(const cudaArray* array, size_t x, size_t y, size_t width, size_t height) {
  if (array == nullptr || x + width > array->pitch() || y + height > array->rows()) return {};
  return {array->data + y * array->pitch() + x, array->pitch(), width, height};
}

// Bytes from a place on, row after row; null if they are not all in there.
char* bytes_from(const cudaArray* array, size_t x, size_t y, size_t bytes) {
  const size_t at = y * array->pitch() + x;
  return at + bytes <= array->rows() * array->pitch() ? array->data + at : nullptr;
}

cudaError_t copy_plane(cudaStream_t stream, bool waits, cudaPitchedPtr to, cudaPitchedPtr from,
                       size_t width, size_t height) {
  if (to.ptr == nullptr || from.ptr == nullptr) return remembered(cudaErrorInvalidValue);
  cudaMemcpy3DParms box{};
  box.dstPtr = to;
  box.srcPtr = from;
  box.extent = {width, height, 1};
  const auto work = [box] { return copy_box(box); };
  return waits ? done_at_once(work) : submit(stream, work);
}

}  // namespace

cudaMemcpy3DParms without_arrays(cudaMemcpy3DParms of) {
  const cudaArray* const any = of.srcArray != nullptr ? of.srcArray : of.dstArray;
  if (any == nullptr) return of;
  of.extent.width *= any->element;
  of.extent.height = std::max<size_t>(of.extent.height, 1);
  of.extent.depth = std::max<size_t>(of.extent.depth, 1);
  const auto plain = [&](const cudaArray* array, cudaPitchedPtr& at, cudaPos& from) {
    if (array == nullptr) return;
    from.x *= array->element;
    const size_t slices = std::max<size_t>(array->extent.depth, 1);
    const bool inside = from.x + of.extent.width <= array->pitch() &&
                        from.y + of.extent.height <= array->rows() &&
                        from.z + of.extent.depth <= slices;
    at = {inside ? array->data : nullptr, array->pitch(), array->pitch(), array->rows()};
  };
  plain(of.srcArray, of.srcPtr, of.srcPos);
  plain(of.dstArray, of.dstPtr, of.dstPos);
  of.srcArray = of.dstArray = nullptr;
  return of;
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

// ---- arrays ------------------------------------------------------------------------------------

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) {
  return {x, y, z, w, f};
}
cudaError_t cudaMalloc3DArray(cudaArray_t* made, const cudaChannelFormatDesc* format,
                              cudaExtent extent, unsigned flags) {
  KB_CALL;
  const size_t element = bytes_of(*format);
  if (element == 0 || extent.width == 0) return remembered(cudaErrorInvalidValue);
  const size_t slices = std::max<size_t>(extent.depth, 1);
  const size_t bytes = extent.width * element * std::max<size_t>(extent.height, 1) * slices;
  void* data = nullptr;
  const cudaError_t status = allocate(&data, bytes, cudaMemoryTypeDevice);
  if (status != cudaSuccess) return status;
  *made = new cudaArray{*format, extent, flags, static_cast<char*>(data), element};
  return cudaSuccess;
}
cudaError_t cudaMallocArray(cudaArray_t* made, const cudaChannelFormatDesc* format, size_t width,
                            size_t height, unsigned flags) {
  KB_CALL;
  return cudaMalloc3DArray(made, format, {width, height, 0}, flags);
}
cudaError_t cudaFreeArray(cudaArray_t array) {
  KB_CALL;
  if (array == nullptr) return cudaSuccess;
  finish_all();
  const cudaError_t status = release(array->data);
  delete array;
  return status;
}
// CUDA runtime API, cudaMallocMipmappedArray: each level has half the extents of the one before, up
// to one texel; layers are no extent.
cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* made,
                                     const cudaChannelFormatDesc* format, cudaExtent extent,
                                     unsigned levels, unsigned flags) {
  KB_CALL;
  const bool layered = (flags & (cudaArrayLayered | cudaArrayCubemap)) != 0;
  auto all = std::make_unique<cudaMipmappedArray>();
  cudaError_t status = cudaSuccess;
  for (unsigned level = 0; level < std::max(levels, 1u) && status == cudaSuccess; ++level) {
    status = cudaMalloc3DArray(&all->levels.emplace_back(), format, extent, flags);
    if (std::max({extent.width, extent.height, layered ? 0 : extent.depth}) <= 1) break;
    const auto halved = [](size_t of) { return of == 0 ? 0 : std::max<size_t>(of / 2, 1); };
    extent = {halved(extent.width), halved(extent.height),
              layered ? extent.depth : halved(extent.depth)};
  }
  if (status == cudaSuccess) *made = all.release();
  return status;
}
cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t* array, cudaMipmappedArray_const_t of,
                                       unsigned level) {
  KB_CALL;
  if (of == nullptr || level >= of->levels.size()) return remembered(cudaErrorInvalidValue);
  *array = of->levels[level];
  return cudaSuccess;
}
cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t of) {
  KB_CALL;
  if (of == nullptr) return cudaSuccess;
  for (const cudaArray_t each : of->levels) cudaFreeArray(each);
  delete of;
  return cudaSuccess;
}
cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags,
                             cudaArray_t array) {
  KB_CALL;
  if (array == nullptr) return remembered(cudaErrorInvalidValue);
  if (format != nullptr) *format = array->format;
  if (extent != nullptr) *extent = array->extent;
  if (flags != nullptr) *flags = array->flags;
  return cudaSuccess;
}
cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array) {
  *format = array->format;
  return cudaSuccess;
}

// ---- copies of arrays --------------------------------------------------------------------------

#define KB_PLANE(name, parameters, stream, waits, to, from)    \
  cudaError_t name parameters {                                \
    KB_CALL;                                                   \
    return copy_plane(stream, waits, to, from, width, height); \
  }
#define KB_HOST(address, pitch)                                                \
  cudaPitchedPtr {                                                             \
    const_cast<void*>(static_cast<const void*>(address)), pitch, width, height \
  }

KB_PLANE(cudaMemcpy2DToArray,
         (cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
          size_t height, cudaMemcpyKind),
         nullptr, true, within(to, x, y, width, height), KB_HOST(from, pitch))
KB_PLANE(cudaMemcpy2DToArrayAsync,
         (cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
          size_t height, cudaMemcpyKind, cudaStream_t stream),
         stream, false, within(to, x, y, width, height), KB_HOST(from, pitch))
KB_PLANE(cudaMemcpy2DFromArray,
         (void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
          size_t height, cudaMemcpyKind),
         nullptr, true, KB_HOST(to, pitch), within(from, x, y, width, height))
KB_PLANE(cudaMemcpy2DFromArrayAsync,
         (void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
          size_t height, cudaMemcpyKind, cudaStream_t stream),
         stream, false, KB_HOST(to, pitch), within(from, x, y, width, height))
KB_PLANE(cudaMemcpy2DArrayToArray,
         (cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t x, size_t y,
          size_t width, size_t height, cudaMemcpyKind),
         nullptr, false, within(to, to_x, to_y, width, height), within(from, x, y, width, height))

cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes,
                              cudaMemcpyKind) {
  KB_CALL;
  char* const begin = bytes_from(to, x, y, bytes);
  if (begin == nullptr) return remembered(cudaErrorInvalidValue);
  return done_at_once([=] { return copy(begin, from, bytes); });
}
cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                cudaMemcpyKind) {
  KB_CALL;
  const char* const begin = bytes_from(from, x, y, bytes);
  if (begin == nullptr) return remembered(cudaErrorInvalidValue);
  return done_at_once([=] { return copy(to, begin, bytes); });
}

// ---- objects -----------------------------------------------------------------------------------

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* made, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* texture,
                                    const cudaResourceViewDesc* view) {
  KB_CALL;
  if (view != nullptr && view->format != cudaResViewFormatNone) return not_here("resource views");
  if (texture->sRGB != 0) return not_here("sRGB textures");
  std::vector<ImageWords> words = levels_of(*resource);
  if (words.empty()) return remembered(cudaErrorInvalidValue);
  for (ImageWords& each : words) set_texture(each, *texture, words.size());
  const bool whole = words[0].kind != 2 && words[0].normalized_read == 0;
  // CUDA programming guide: linear filters are for textures that return floating point.
  if (words[0].linear_filter != 0 && whole) return remembered(cudaErrorInvalidFilterSetting);
  return make_object(made, words, {*resource, *texture});
}
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
  return destroy_object(object);
}
cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaTextureObject_t object) {
  KB_CALL;
  const auto found = objects.find(object);
  if (found == objects.end()) return remembered(cudaErrorInvalidValue);
  *resource = found->second.resource;
  return cudaSuccess;
}
cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* texture, cudaTextureObject_t object) {
  KB_CALL;
  const auto found = objects.find(object);
  if (found == objects.end()) return remembered(cudaErrorInvalidValue);
  *texture = found->second.texture;
  return cudaSuccess;
}
// CUDA programming guide, Surface Memory: the array was created with cudaArraySurfaceLoadStore.
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* made, const cudaResourceDesc* resource) {
  KB_CALL;
  ImageWords words{};
  if (resource->resType != cudaResourceTypeArray || !image_of(*resource, words) ||
      (resource->res.array.array->flags & cudaArraySurfaceLoadStore) == 0) {
    return remembered(cudaErrorInvalidValue);
  }
  return make_object(made, {words}, {*resource, {}});
}
cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
  return destroy_object(object);
}
cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaSurfaceObject_t object) {
  return cudaGetTextureObjectResourceDesc(resource, object);
}

}  // extern "C"
