// The product of the cuda and hip backends: by cuBLAS or rocBLAS, which are looked for while the program runs, or by
// kernels of our own, on NVIDIA's tensor cores where there are such for the type.
#include <algorithm>
#include <memory>

#include "fabricbench/device/gpu_call.hpp"
#include "fabricbench/device/product.hpp"
#include "fabricbench/shared_library.hpp"

#if defined(FABRICBENCH_AMD)
#include <hip/hip_fp16.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#endif

namespace fabricbench::product {
namespace {

using device::check;
using device::native_stream;

#if defined(FABRICBENCH_AMD)
struct Bfloat16 {
  std::uint16_t bits;
};
#else
using Bfloat16 = __nv_bfloat16;
#endif

// `Number` of a whole number below 256, and the number that a result is added up of.
template <typename Number>
__device__ Number number_of(int whole) {
  return static_cast<Number>(whole);
}
template <>
__device__ __half number_of<__half>(int whole) {
  return __float2half(static_cast<float>(whole));
}
template <>
__device__ Bfloat16 number_of<Bfloat16>(int whole) {
#if defined(FABRICBENCH_AMD)
  return {static_cast<std::uint16_t>(__float_as_uint(static_cast<float>(whole)) >> 16)};
#else
  return __float2bfloat16(static_cast<float>(whole));
#endif
}
__device__ float value_of(float number) { return number; }
__device__ double value_of(double number) { return number; }
__device__ float value_of(__half number) { return __half2float(number); }
__device__ float value_of(Bfloat16 number) {
#if defined(FABRICBENCH_AMD)
  return __uint_as_float(static_cast<std::uint32_t>(number.bits) << 16);
#else
  return __bfloat162float(number);
#endif
}

// The type goes with the arguments for whoever stands in for the GPU runtime.
template <typename Number>
__global__ void fill_factors(std::uint32_t, Number* factors, std::uint64_t count, std::uint64_t second) {
  for (std::uint64_t i = blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x; i < count;
       i += gridDim.x * static_cast<std::uint64_t>(blockDim.x))
    factors[i] = number_of<Number>(pattern::factor(i, second != 0));
}

// Words of 4 bytes, four in a load.
__global__ void compare_results(const uint4* result, const uint4* expected, std::uint64_t quads, std::uint64_t number,
                                Differences* differences) {
  for (std::uint64_t i = blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x; i < quads;
       i += gridDim.x * static_cast<std::uint64_t>(blockDim.x)) {
    const uint4 got = result[i];
    const uint4 right = expected[i];
    const bool wrong[] = {got.x != right.x, got.y != right.y, got.z != right.z, got.w != right.w};
    for (unsigned k = 0; k < 4; ++k) {
      if (!wrong[k]) continue;
      atomicAdd(reinterpret_cast<unsigned long long*>(&differences->words), 1ULL);
      atomicMin(reinterpret_cast<unsigned long long*>(&differences->first),
                static_cast<unsigned long long>(pattern::packed(number, 4 * i + k)));
    }
  }
}

constexpr int kCoresTile = 64;

// A block has a tile of 64 x 64 results, each of its 256 threads 4 x 4 of them.
template <typename Number, typename Result>
__global__ void __launch_bounds__(256)
    multiply_by_cores(std::uint32_t, const Number* a, const Number* b, Result* c, std::uint64_t order) {
  constexpr int kDepth = 16;
  __shared__ Result rows[kDepth][kCoresTile + 1];
  __shared__ Result columns[kDepth][kCoresTile];
  const std::uint64_t first_row = static_cast<std::uint64_t>(blockIdx.y) * kCoresTile;
  const std::uint64_t first_column = static_cast<std::uint64_t>(blockIdx.x) * kCoresTile;
  const int row = static_cast<int>(threadIdx.x) / 16;
  const int column = static_cast<int>(threadIdx.x) % 16;
  Result sums[4][4] = {};
  for (std::uint64_t step = 0; step < order; step += kDepth) {
    for (int i = static_cast<int>(threadIdx.x); i < kCoresTile * kDepth; i += 256) {
      rows[i % kDepth][i / kDepth] = value_of(
          a[(first_row + static_cast<unsigned>(i / kDepth)) * order + step + static_cast<unsigned>(i % kDepth)]);
      columns[i / kCoresTile][i % kCoresTile] = value_of(b[(step + static_cast<unsigned>(i / kCoresTile)) * order +
                                                           first_column + static_cast<unsigned>(i % kCoresTile)]);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += rows[k][row + 16 * i] * columns[k][column + 16 * j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j)
      c[(first_row + static_cast<unsigned>(row + 16 * i)) * order + first_column +
        static_cast<unsigned>(column + 16 * j)] = sums[i][j];
  }
}

#if !defined(FABRICBENCH_AMD)
constexpr int kTensorTile = 128;

// A block has a tile of 128 x 128 results, each of its eight warps 64 x 32 of them; the next factors are on their way
// from memory while these are multiplied.
template <typename Number>
__global__ void __launch_bounds__(256)
    multiply_by_tensor_cores(std::uint32_t, const Number* a, const Number* b, float* c, std::uint64_t order) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  namespace wmma = nvcuda::wmma;
  constexpr unsigned kDepth = 32;
  constexpr unsigned kPad = 8;  // so that rows begin at other banks
  constexpr unsigned kQuad = sizeof(uint4) / sizeof(Number);
  constexpr unsigned kLoads = kTensorTile * kDepth / kQuad / 256;
  __shared__ alignas(32) Number rows[kTensorTile][kDepth + kPad];
  __shared__ alignas(32) Number columns[kDepth][kTensorTile + kPad];
  const std::uint64_t first_row = static_cast<std::uint64_t>(blockIdx.y) * kTensorTile;
  const std::uint64_t first_column = static_cast<std::uint64_t>(blockIdx.x) * kTensorTile;
  const unsigned row = threadIdx.x / 32 / 4 * 64;
  const unsigned column = threadIdx.x / 32 % 4 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4][2];
  for (auto& line : sums) {
    for (auto& sum : line) wmma::fill_fragment(sum, 0.0F);
  }
  uint4 next_rows[kLoads];
  uint4 next_columns[kLoads];
  const auto load = [&](std::uint64_t step) {
    for (unsigned k = 0; k < kLoads; ++k) {
      const unsigned i = (threadIdx.x + k * 256) * kQuad;
      next_rows[k] = *reinterpret_cast<const uint4*>(a + (first_row + i / kDepth) * order + step + i % kDepth);
      next_columns[k] =
          *reinterpret_cast<const uint4*>(b + (step + i / kTensorTile) * order + first_column + i % kTensorTile);
    }
  };
  load(0);
  for (std::uint64_t step = 0; step < order; step += kDepth) {
    for (unsigned k = 0; k < kLoads; ++k) {
      const unsigned i = (threadIdx.x + k * 256) * kQuad;
      *reinterpret_cast<uint4*>(&rows[i / kDepth][i % kDepth]) = next_rows[k];
      *reinterpret_cast<uint4*>(&columns[i / kTensorTile][i % kTensorTile]) = next_columns[k];
    }
    __syncthreads();
    if (step + kDepth < order) load(step + kDepth);
    for (unsigned k = 0; k < kDepth; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, Number, wmma::row_major> left[4];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, Number, wmma::row_major> right[2];
      for (unsigned i = 0; i < 4; ++i) wmma::load_matrix_sync(left[i], &rows[row + 16 * i][k], kDepth + kPad);
      for (unsigned j = 0; j < 2; ++j)
        wmma::load_matrix_sync(right[j], &columns[k][column + 16 * j], kTensorTile + kPad);
      for (unsigned i = 0; i < 4; ++i) {
        for (unsigned j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
  for (unsigned i = 0; i < 4; ++i) {
    for (unsigned j = 0; j < 2; ++j) {
      wmma::store_matrix_sync(c + (first_row + row + 16 * i) * order + first_column + column + 16 * j, sums[i][j],
                              static_cast<unsigned>(order), wmma::mem_row_major);
    }
  }
#endif
}
#endif

// The calls of a BLAS library, whose headers are not needed: their enumerations are part of its binary interface.
// cuBLAS: cublas_api.h and library_types.h; rocBLAS: rocblas-types.h.
struct Blas {
#if defined(FABRICBENCH_AMD)
  static constexpr char kTitle[] = "rocBLAS";
  static constexpr int kAsItIs = 111;
  static constexpr int kTypes[] = {168, 150, 151, 152};
  Blas() : library("librocblas.so") {
    library.find(create, "rocblas_create_handle");
    library.find(destroy, "rocblas_destroy_handle");
    library.find(set_stream, "rocblas_set_stream");
    library.find(gemm, "rocblas_gemm_ex");
  }
  int (*gemm)(void* handle, int, int, int, int, int, const void* alpha, const void*, int, int, const void*, int, int,
              const void* beta, const void*, int, int, void*, int, int, int compute, int algorithm, std::int32_t,
              std::uint32_t) = nullptr;
#else
  static constexpr char kTitle[] = "cuBLAS";
  static constexpr int kAsItIs = 0;
  static constexpr int kTypes[] = {14, 2, 0, 1};
  Blas() : library(("libcublas.so." + std::to_string(CUDART_VERSION / 1000)).c_str()) {
    library.find(create, "cublasCreate_v2");
    library.find(destroy, "cublasDestroy_v2");
    library.find(set_stream, "cublasSetStream_v2");
    library.find(get_version, "cublasGetVersion_v2");
    library.find(gemm, "cublasGemmEx");
  }
  int (*get_version)(void* handle, int* version) = nullptr;
  int (*gemm)(void* handle, int, int, int, int, int, const void* alpha, const void*, int, int, const void*, int, int,
              const void* beta, void*, int, int, int compute, int algorithm) = nullptr;
#endif
  SharedLibrary library;
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, void* stream) = nullptr;
};

const Blas& blas() {
  static const Blas calls;
  return calls;
}

// cuBLAS and rocBLAS have matrices column by column: to them ours are transposed, and B^T A^T is the transposed result.
int library_product(void* handle, Type type, int order, const void* a, const void* b, void* c) {
  const bool is_double = type == Type::float64;
  const float single[] = {1, 0};
  const double both[] = {1, 0};
  const void* unit = is_double ? static_cast<const void*>(both) : single;
  const void* zero = is_double ? static_cast<const void*>(both + 1) : single + 1;
  const int of_factors = Blas::kTypes[static_cast<std::size_t>(type)];
  const int of_result = Blas::kTypes[static_cast<std::size_t>(is_double ? Type::float64 : Type::float32)];
#if defined(FABRICBENCH_AMD)
  return blas().gemm(handle, Blas::kAsItIs, Blas::kAsItIs, order, order, order, unit, b, of_factors, order, a,
                     of_factors, order, zero, c, of_result, order, c, of_result, order, of_result, 0, 0, 0);
#else
  constexpr int kCompute32 = 68;
  constexpr int kCompute64 = 70;
  return blas().gemm(handle, Blas::kAsItIs, Blas::kAsItIs, order, order, order, unit, b, of_factors, order, a,
                     of_factors, order, zero, c, of_result, order, is_double ? kCompute64 : kCompute32, -1);
#endif
}

#if !defined(FABRICBENCH_AMD)
// Whether the device has tensor cores for both types of two bytes.
bool has_tensor_cores() {
  int device_index = 0;
  int major = 0;
  return cudaGetDevice(&device_index) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_index) == cudaSuccess && major >= 8;
}
#endif

template <typename Number, typename Result>
void multiply_with(gpuStream_t stream, Type type, const std::byte* a, const std::byte* b, std::byte* c,
                   std::uint64_t order) {
  const auto* left = reinterpret_cast<const Number*>(a);
  const auto* right = reinterpret_cast<const Number*>(b);
  auto* result = reinterpret_cast<Result*>(c);
  const auto number = static_cast<std::uint32_t>(type);
#if !defined(FABRICBENCH_AMD)
  if constexpr (sizeof(Number) == 2) {
    static const bool by_tensor_cores = has_tensor_cores();
    const auto tiles = static_cast<unsigned>(order / kTensorTile);
    if (by_tensor_cores)
      return multiply_by_tensor_cores<Number>
          <<<dim3(tiles, tiles), 256, 0, stream>>>(number, left, right, result, order);
  }
#endif
  const auto tiles = static_cast<unsigned>(order / kCoresTile);
  multiply_by_cores<Number, Result><<<dim3(tiles, tiles), 256, 0, stream>>>(number, left, right, result, order);
}

template <typename Number>
void fill_with(gpuStream_t stream, Type type, std::byte* factors, std::uint64_t count, bool second) {
  fill_factors<Number><<<1024, 256, 0, stream>>>(static_cast<std::uint32_t>(type), reinterpret_cast<Number*>(factors),
                                                 count, second ? 1 : 0);
}

}  // namespace

const Type kUsualType = Type::bfloat16;
const std::uint64_t kUsualOrder = 8192;

std::string why_unsupported(Type) { return ""; }

Multiplier::Multiplier(device::Stream& stream, Type type, std::uint64_t order, bool by_library)
    : stream_(stream), type_(type), order_(order) {
  if (!by_library) return;
  const Blas& calls = blas();
  why_no_library_ = calls.library.missing();
  if (!why_no_library_.empty()) return;
  if (const int result = calls.create(&library_); result != 0) {
    library_ = nullptr;
    why_no_library_ = std::string(Blas::kTitle) + " does not start: status " + std::to_string(result);
    return;
  }
  if (calls.set_stream(library_, stream.native()) != 0)
    throw RunError("library", std::string(Blas::kTitle) + " does not take a stream");
  by_ = Blas::kTitle;
#if !defined(FABRICBENCH_AMD)
  int version = 0;
  if (calls.get_version(library_, &version) == 0) by_ += ' ' + std::to_string(version);
#endif
}

Multiplier::~Multiplier() {
  if (library_ != nullptr) blas().destroy(library_);
}

void Multiplier::fill(std::byte* factors, bool second) {
  const auto fill_type = type_ == Type::bfloat16  ? fill_with<Bfloat16>
                         : type_ == Type::float16 ? fill_with<__half>
                         : type_ == Type::float32 ? fill_with<float>
                                                  : fill_with<double>;
  fill_type(native_stream(stream_), type_, factors, order_ * order_, second);
  check(gpuGetLastError(), "filling the factors");
}

void Multiplier::multiply(const std::byte* a, const std::byte* b, std::byte* result) {
  if (library_ != nullptr) {
    const int status = library_product(library_, type_, static_cast<int>(order_), a, b, result);
    if (status != 0) throw RunError("library", by_ + " failed to multiply: status " + std::to_string(status));
    return;
  }
  const auto multiply_type = type_ == Type::bfloat16  ? multiply_with<Bfloat16, float>
                             : type_ == Type::float16 ? multiply_with<__half, float>
                             : type_ == Type::float32 ? multiply_with<float, float>
                                                      : multiply_with<double, double>;
  multiply_type(native_stream(stream_), type_, a, b, result, order_);
  check(gpuGetLastError(), "the product");
}

void Multiplier::compare(const std::byte* result, const std::byte* expected, std::uint64_t number,
                         Differences* differences) {
  const std::uint64_t quads = order_ * order_ * result_bytes(type_) / sizeof(uint4);
  compare_results<<<1024, 256, 0, native_stream(stream_)>>>(
      reinterpret_cast<const uint4*>(result), reinterpret_cast<const uint4*>(expected), quads, number, differences);
  check(gpuGetLastError(), "the comparison of results");
}

}  // namespace fabricbench::product
