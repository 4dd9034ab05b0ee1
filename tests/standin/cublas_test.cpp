// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cublasLt.h>
#include <cublas_v2.h>
#include <doctest/doctest.h>

#include <shardkit/core/bf16.hpp>

#include "cuda_fixture.hpp"

namespace cublas_test {

namespace {

constexpr std::size_t workspace_bytes = 1024;

struct Blas {
    cublasHandle_t handle = nullptr;
    explicit Blas(cudaStream_t stream) {
        CHECK(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
        CHECK(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
    }
    ~Blas() { CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS); }
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;

    /// c += 2 * a * b, numbers
    cublasStatus_t add_product(const double* a, const double* b, double* c) const {
        const double two = 2;
        const double one = 1;
        return cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &two, a, 1, b, 1, &one, c, 1);
    }
};

}  // namespace

TEST_CASE("cuBLAS: a captured product is done at every launch, with what its matrices hold then") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<double> numbers(3);
    DeviceArray<char> workspace(workspace_bytes);
    const Blas blas(stream);
    CHECK(cublasSetWorkspace(blas.handle, workspace.data, workspace_bytes) == CUBLAS_STATUS_SUCCESS);
    numbers[0] = 3;
    numbers[1] = 5;
    numbers[2] = 1;
    cudaGraphExec_t graph = captured(stream, [&] {
        CHECK(blas.add_product(numbers.data, numbers.data + 1, numbers.data + 2) == CUBLAS_STATUS_SUCCESS);
    });
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(numbers[2] == 1);
    double expected = 1;
    for (const double factor : {3.0, 7.0, -1.0}) {
        numbers[0] = factor;
        workspace[0] = 0;
        CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        expected += 2 * factor * 5;
        CHECK(numbers[2] == expected);
        CHECK(workspace[0] != 0);
    }
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
}

TEST_CASE("cuBLAS: a capture needs a workspace, which setting the stream takes back") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<double> numbers(3);
    DeviceArray<char> workspace(workspace_bytes);
    const Blas blas(stream);
    const auto product = [&] { return blas.add_product(numbers.data, numbers.data + 1, numbers.data + 2); };
    const auto captured_product = [&] {
        cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
        CHECK(cudaGraphExecDestroy(captured(stream, [&] { status = product(); })) == cudaSuccess);
        return status;
    };
    CHECK(product() == CUBLAS_STATUS_SUCCESS);
    CHECK(captured_product() == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(cublasSetWorkspace(blas.handle, workspace.data, workspace_bytes) == CUBLAS_STATUS_SUCCESS);
    CHECK(captured_product() == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetStream(blas.handle, stream) == CUBLAS_STATUS_SUCCESS);
    CHECK(captured_product() == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(product() == CUBLAS_STATUS_SUCCESS);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("cuBLAS: a workspace is memory of the device, at a multiple of 256 bytes") {
    const Fresh fresh;
    TestStream stream;
    DeviceArray<char> workspace(workspace_bytes);
    const Blas blas(stream);
    alignas(256) static char on_host[workspace_bytes];
    CHECK(cublasSetWorkspace(nullptr, workspace.data, workspace_bytes) == CUBLAS_STATUS_NOT_INITIALIZED);
    CHECK(cublasSetWorkspace(blas.handle, workspace.data + 1, 512) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasSetWorkspace(blas.handle, on_host, workspace_bytes) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasSetWorkspace(blas.handle, nullptr, 1) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasSetWorkspace(blas.handle, workspace.data + 256, 512) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetWorkspace(blas.handle, nullptr, 0) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("cuBLAS: a batch of products, one behind the other or beside each other, in each of the types") {
    const Fresh fresh;
    TestStream stream;
    const Blas blas(stream);
    const auto check = [&](auto in, auto out, auto scale, cudaDataType_t in_type, cudaDataType_t out_type,
                           cublasComputeType_t compute) {
        using In = decltype(in);
        using Out = decltype(out);
        using Scale = decltype(scale);
        // Two products of 2 x 3 and 3 x 2, whose results lie beside each other in rows of 4.
        DeviceArray<In> a(12);
        DeviceArray<In> b(12);
        DeviceArray<Out> c(8);
        for (std::size_t i = 0; i < 12; ++i) {
            a[i] = static_cast<In>(static_cast<float>(i) - 5.0F);
            b[i] = static_cast<In>(0.5F * static_cast<float>(i % 5));
        }
        for (std::size_t i = 0; i < 8; ++i) { c[i] = static_cast<Out>(static_cast<float>(i)); }
        const Scale alpha = 2;
        const Scale beta = 1;
        CHECK(cublasGemmStridedBatchedEx(blas.handle, CUBLAS_OP_T, CUBLAS_OP_N, 2, 2, 3, &alpha, a.data, in_type, 3,
                                         6, b.data, in_type, 3, 6, &beta, c.data, out_type, 4, 2, 2, compute,
                                         CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        for (std::size_t number = 0; number < 2; ++number) {
            for (std::size_t row = 0; row < 2; ++row) {
                for (std::size_t column = 0; column < 2; ++column) {
                    const std::size_t at = column * 4 + number * 2 + row;
                    float expected = static_cast<float>(at);
                    for (std::size_t i = 0; i < 3; ++i) {
                        expected += 2 * (static_cast<float>(number * 6 + row * 3 + i) - 5.0F) * 0.5F *
                                    static_cast<float>((number * 6 + column * 3 + i) % 5);
                    }
                    CHECK(static_cast<float>(c[at]) == expected);
                }
            }
        }
    };
    using shardkit::bf16;
    check(double{}, double{}, double{}, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F);
    check(float{}, float{}, float{}, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F);
    check(bf16{}, bf16{}, float{}, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F);
    check(bf16{}, float{}, float{}, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F);
}

TEST_CASE("cuBLAS: a batch is refused where cuBLAS or a GPU would refuse it") {
    const Fresh fresh;
    TestStream stream;
    const Blas blas(stream);
    DeviceArray<float> numbers(8);
    float on_host[8] = {};
    const float one = 1;
    struct Call {
        int m = 2, lda = 2, count = 2;
        long long a_stride = 0, c_stride = 2;
        cudaDataType_t type = CUDA_R_32F;
        cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    };
    const auto status = [&](const Call& call, float* c, cublasHandle_t handle) {
        return cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, call.m, 1, 1, &one, numbers.data,
                                          call.type, call.lda, call.a_stride, numbers.data, call.type, 1, 0, &one, c,
                                          call.type, 2, call.c_stride, call.count, call.compute, CUBLAS_GEMM_DEFAULT);
    };
    const auto of = [&](const Call& call) { return status(call, numbers.data + 2, blas.handle); };
    CHECK(of({}) == CUBLAS_STATUS_SUCCESS);
    CHECK(of({.count = 0}) == CUBLAS_STATUS_SUCCESS);
    CHECK(status({}, numbers.data + 2, nullptr) == CUBLAS_STATUS_NOT_INITIALIZED);
    CHECK(of({.m = -1}) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(of({.count = -1}) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(of({.lda = 1}) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(of({.c_stride = 1}) == CUBLAS_STATUS_INVALID_VALUE);     // results overlap
    CHECK(of({.c_stride = 1024}) == CUBLAS_STATUS_INVALID_VALUE);  // the second one lies behind the memory
    CHECK(of({.a_stride = 1024}) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(status({}, on_host, blas.handle) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(of({.type = CUDA_R_64F}) == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(of({.compute = CUBLAS_COMPUTE_64F}) == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(of({.type = CUDA_R_16F}) == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE(
    "cuBLAS: factors lie where the pointer mode says, on a device with what they hold when the product is made") {
    const Fresh fresh;
    TestStream stream;
    const Blas blas(stream);
    DeviceArray<double> numbers(5);  // a, b, c, alpha, beta
    const double one = 1;
    const auto product = [&](const double* alpha, const double* beta) {
        return cublasDgemm(blas.handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, alpha, numbers.data, 1, numbers.data + 1,
                           1, beta, numbers.data + 2, 1);
    };
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_DEVICE;
    CHECK(cublasGetPointerMode(blas.handle, &mode) == CUBLAS_STATUS_SUCCESS);
    CHECK(mode == CUBLAS_POINTER_MODE_HOST);
    CHECK(product(numbers.data + 3, numbers.data + 4) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasSetPointerMode(blas.handle, CUBLAS_POINTER_MODE_DEVICE) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasSetStream(blas.handle, stream) == CUBLAS_STATUS_SUCCESS);  // which keeps the mode
    CHECK(product(&one, &one) == CUBLAS_STATUS_INVALID_VALUE);
    for (std::size_t i = 0; i < 5; ++i) { numbers[i] = static_cast<double>(i + 2); }
    CHECK(product(numbers.data + 3, numbers.data + 4) == CUBLAS_STATUS_SUCCESS);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(numbers[2] == 5 * 2 * 3 + 6 * 4);
}

namespace {

/// d = gelu(a * b + bias), or what `epilogue` says, of a 8 x 3 and b 3 x 2, in columns; and what may be wrong with
/// it.
struct LtCall {
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    cudaDataType_t type = CUDA_R_32F;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    std::int64_t aux_leading = 8;
    std::size_t bias_at = 0, aux_at = 0, d_at = 0, b_rows = 3;
    std::uint32_t promised = 16;  // bytes
    std::size_t workspace_at = 0;
    bool has_algorithm = true;
    std::uint64_t other_rows = 8;  // of what is multiplied by the algorithm that was chosen for 8
};
struct LtStatus {
    cublasStatus_t chosen, made;
};

template <class T>
struct LtMemory {
    DeviceArray<T> a{64}, b{64}, bias{64}, aux{64}, d{64};
    DeviceArray<char> workspace{workspace_bytes};
    LtMemory() {
        for (std::size_t i = 0; i < 64; ++i) {
            a[i] = static_cast<T>(0.25F * static_cast<float>(i % 7) - 0.5F);
            b[i] = static_cast<T>(0.5F * static_cast<float>(i % 5) - 1.0F);
            bias[i] = static_cast<T>(0.125F * static_cast<float>(i % 3));
            aux[i] = static_cast<T>(0.25F * static_cast<float>(i % 11) - 1.0F);
            d[i] = T{};
        }
    }
};

template <class T>
LtStatus lt_product(const Blas& blas, cudaStream_t stream, LtMemory<T>& memory, const LtCall& call) {
    cublasLtMatmulDescOpaque_t how{};
    CHECK(cublasLtMatmulDescInit(&how, call.compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
        CHECK(cublasLtMatmulDescSetAttribute(&how, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
        CHECK(cublasLtMatmulDescSetAttribute(&how, attribute, &value, 3) == CUBLAS_STATUS_INVALID_VALUE);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_T});
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{call.epilogue});
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory.bias.data + call.bias_at);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory.aux.data + call.aux_at);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.aux_leading);
    const auto layout = [&](std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
        cublasLtMatrixLayoutOpaque_t of{};
        CHECK(cublasLtMatrixLayoutInit(&of, call.type, rows, columns, leading) == CUBLAS_STATUS_SUCCESS);
        return of;
    };
    cublasLtMatrixLayoutOpaque_t a = layout(3, 8, 3), b = layout(call.b_rows, 2, 4), d = layout(8, 2, 8);
    cublasLtMatmulPreferenceOpaque_t within{};
    CHECK(cublasLtMatmulPreferenceInit(&within) == CUBLAS_STATUS_SUCCESS);
    const auto prefer = [&](int attribute, const auto& value) {
        CHECK(cublasLtMatmulPreferenceSetAttribute(&within,
                                                   static_cast<cublasLtMatmulPreferenceAttributes_t>(attribute),
                                                   &value, sizeof value) == CUBLAS_STATUS_SUCCESS);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{512});
    for (int matrix = 0; matrix < 4; ++matrix) {
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + matrix, call.promised);
    }
    cublasLtMatmulHeuristicResult_t chosen{};
    int found = 0;
    const auto lt = reinterpret_cast<cublasLtHandle_t>(blas.handle);
    LtStatus status{cublasLtMatmulAlgoGetHeuristic(lt, &how, &a, &b, &d, &d, &within, 1, &chosen, &found),
                    CUBLAS_STATUS_SUCCESS};
    CHECK((status.chosen == CUBLAS_STATUS_SUCCESS) == (found == 1));
    if (!call.has_algorithm) { chosen = {}; }
    a = layout(3, call.other_rows, 3);
    d = layout(call.other_rows, 2, 8);
    const float one = 1;
    const float zero = 0;
    T* const to = memory.d.data + call.d_at;
    status.made = cublasLtMatmul(lt, &how, &one, memory.a.data, &a, memory.b.data, &b, &zero, to, &d, to, &d,
                                 &chosen.algo, memory.workspace.data + call.workspace_at, 512, stream);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    return status;
}

}  // namespace

TEST_CASE("cuBLASLt: a product with bias, with GELU and its input, or with GELU's slope, by sums in fp32") {
    const Fresh fresh;
    TestStream stream;
    const Blas blas(stream);
    const auto check = [&](auto element, cudaDataType_t type, double bound) {
        using T = decltype(element);
        for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                    CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU}) {
            LtMemory<T> memory;
            LtMemory<T> before;
            const LtStatus status = lt_product(blas, stream, memory, {.epilogue = epilogue, .type = type});
            CHECK(status.chosen == CUBLAS_STATUS_SUCCESS);
            CHECK(status.made == CUBLAS_STATUS_SUCCESS);
            CHECK(memory.workspace[0] != 0);
            const auto at = [](const DeviceArray<T>& of, std::size_t i) {
                return static_cast<double>(static_cast<float>(of[i]));
            };
            const auto gelu = [](double x) {
                return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
            };
            for (std::size_t i = 0; i < 16; ++i) {
                double sum = 0;
                for (std::size_t k = 0; k < 3; ++k) {
                    sum += at(memory.a, i % 8 * 3 + k) * at(memory.b, i / 8 * 4 + k);
                }
                const double biased = sum + at(memory.bias, i % 8);
                const double x = at(before.aux, i);
                const double expected = epilogue == CUBLASLT_EPILOGUE_DEFAULT ? sum
                                        : epilogue == CUBLASLT_EPILOGUE_BIAS  ? biased
                                        : epilogue == CUBLASLT_EPILOGUE_DGELU
                                            ? sum * (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5
                                            : gelu(biased);
                CHECK(std::abs(at(memory.d, i) - expected) < bound);
                const double kept = epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ? biased : x;
                CHECK(std::abs(at(memory.aux, i) - kept) < bound);
            }
        }
    };
    check(float{}, CUDA_R_32F, 1e-6);
    check(shardkit::bf16{}, CUDA_R_16BF, 1e-2);
}

TEST_CASE("cuBLASLt: a product is refused where cuBLASLt or a GPU would refuse it") {
    const Fresh fresh;
    TestStream stream;
    const Blas blas(stream);
    LtMemory<float> memory;
    const auto of = [&](const LtCall& call) { return lt_product(blas, stream, memory, call); };
    // Before it is chosen, and as it is then no product either.
    for (const LtCall& call : {LtCall{.aux_leading = 12}, LtCall{.aux_leading = 0}, LtCall{.b_rows = 4}}) {
        CHECK(of(call).chosen == CUBLAS_STATUS_INVALID_VALUE);
        CHECK(of(call).made == CUBLAS_STATUS_INVALID_VALUE);
    }
    for (const LtCall& call :
         {LtCall{.type = CUDA_R_64F}, LtCall{.type = CUDA_R_16F}, LtCall{.compute = CUBLAS_COMPUTE_64F}}) {
        CHECK(of(call).chosen == CUBLAS_STATUS_NOT_SUPPORTED);
        CHECK(of(call).made == CUBLAS_STATUS_NOT_SUPPORTED);
    }
    for (const LtCall& call : {LtCall{.bias_at = 1}, LtCall{.aux_at = 2}, LtCall{.promised = 8}}) {
        CHECK(of(call).chosen == CUBLAS_STATUS_NOT_SUPPORTED);
        CHECK(of(call).made == CUBLAS_STATUS_INVALID_VALUE);
    }
    // Only then: memory that is not as was promised, or another product than was asked about.
    for (const LtCall& call : {LtCall{.d_at = 1}, LtCall{.workspace_at = 1}, LtCall{.has_algorithm = false},
                               LtCall{.d_at = 4096}, LtCall{.other_rows = 7}}) {
        CHECK(of(call).chosen == CUBLAS_STATUS_SUCCESS);
        CHECK(of(call).made == CUBLAS_STATUS_INVALID_VALUE);
    }
    CHECK(of({}).made == CUBLAS_STATUS_SUCCESS);
    CHECK(of({.epilogue = CUBLASLT_EPILOGUE_BIAS, .aux_leading = 0}).made == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("cuBLAS: a product in a stream of another device than the selected one is refused, by cuBLASLt too") {
    const Fresh fresh;
    TestStream stream;
    const Blas blas(stream);
    LtMemory<float> memory;
    DeviceArray<double> numbers(3);
    const auto product = [&] { return blas.add_product(numbers.data, numbers.data + 1, numbers.data + 2); };
    CHECK(cudaSetDevice(1) == cudaSuccess);
    CHECK(product() == CUBLAS_STATUS_EXECUTION_FAILED);
    CHECK(lt_product(blas, stream, memory, {}).made == CUBLAS_STATUS_EXECUTION_FAILED);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(product() == CUBLAS_STATUS_SUCCESS);
    CHECK(lt_product(blas, stream, memory, {}).made == CUBLAS_STATUS_SUCCESS);
}

}  // namespace cublas_test
