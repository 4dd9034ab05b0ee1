// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include <shardkit/core/bf16.hpp>

#include "state.hpp"

namespace standin {
namespace {

// What lies in the opaque structures.
struct Layout {
    cudaDataType_t type;
    std::uint64_t rows, columns;
    std::int64_t leading;

    /// Bytes from the first element to behind the last one.
    std::size_t bytes() const {
        const std::size_t element = type == CUDA_R_16BF ? 2 : 4;
        return rows == 0 || columns == 0 ? 0 : ((columns - 1) * static_cast<std::uint64_t>(leading) + rows) * element;
    }
};
struct Description {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    std::array<std::int32_t, 2> ops{CUBLAS_OP_N, CUBLAS_OP_N};
    std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    void* aux = nullptr;
    std::int64_t aux_leading = 0;

    bool has_bias() const {
        return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    }
    bool has_aux() const {
        return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
    }
};
struct Preference {
    std::uint64_t workspace = 0;
    std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};  // of a, b, c and d
};
/// Of the products that it was chosen for, and of no others.
struct Algorithm {
    std::uint64_t workspace;
    std::uint32_t m, n, k, epilogue;
    std::array<std::uint32_t, 4> alignments;
    std::uint32_t chosen;
};
constexpr std::uint32_t chosen_mark = 0x5eedU;

template <class Inner, class Opaque>
Inner read(const Opaque* from) {
    static_assert(sizeof(Inner) <= sizeof(Opaque));
    Inner inner;
    std::memcpy(static_cast<void*>(&inner), from, sizeof inner);
    return inner;
}
template <class Inner, class Opaque>
cublasStatus_t write(Opaque* to, const Inner& inner) {
    static_assert(sizeof(Inner) <= sizeof(Opaque));
    if (to == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    std::memcpy(to, &inner, sizeof inner);
    return CUBLAS_STATUS_SUCCESS;
}
template <class Field>
cublasStatus_t set(Field& field, const void* value, std::size_t bytes) {
    if (value == nullptr || bytes != sizeof field) { return CUBLAS_STATUS_INVALID_VALUE; }
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/// All of a product but its pointers.
struct Shape {
    Description how;
    Layout a, b, c, d;
    std::size_t m, n, k;

    static Shape of(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
        Shape shape{read<Description>(description),
                    read<Layout>(a),
                    read<Layout>(b),
                    read<Layout>(c),
                    read<Layout>(d),
                    0,
                    0,
                    0};
        const bool plain = shape.how.ops[0] == CUBLAS_OP_N;
        shape.m = plain ? shape.a.rows : shape.a.columns;
        shape.k = plain ? shape.a.columns : shape.a.rows;
        shape.n = shape.how.ops[1] == CUBLAS_OP_N ? shape.b.columns : shape.b.rows;
        return shape;
    }
    cublasStatus_t status() const {
        for (const Layout& each : {a, b, c, d}) {
            if (each.leading < static_cast<std::int64_t>(each.rows)) { return CUBLAS_STATUS_INVALID_VALUE; }
            if (each.type != a.type) { return CUBLAS_STATUS_NOT_SUPPORTED; }
        }
        const bool fits = (how.ops[1] == CUBLAS_OP_N ? b.rows : b.columns) == k && c.rows == m && c.columns == n &&
                          d.rows == m && d.columns == n;
        if (!fits) { return CUBLAS_STATUS_INVALID_VALUE; }
        if (how.has_bias() && how.bias == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
        if (how.has_aux() &&
            (how.aux == nullptr || how.aux_leading % 8 != 0 || how.aux_leading < static_cast<std::int64_t>(m))) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
        const bool known = how.epilogue == CUBLASLT_EPILOGUE_DEFAULT || how.has_bias() || how.has_aux();
        const bool typed = how.compute == CUBLAS_COMPUTE_32F && how.scale == CUDA_R_32F &&
                           (a.type == CUDA_R_32F || a.type == CUDA_R_16BF);
        return known && typed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    }
};

bool is_aligned(const void* pointer, std::size_t to) { return reinterpret_cast<std::uintptr_t>(pointer) % to == 0; }
bool lies_on_device(const void* pointer, std::size_t bytes) {
    const auto at = [&](std::size_t offset) {
        cudaPointerAttributes attributes{};
        return cudaPointerGetAttributes(&attributes, static_cast<const char*>(pointer) + offset) == cudaSuccess &&
               (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged);
    };
    return bytes == 0 || (at(0) && at(bytes - 1));
}

/// GELU by the hyperbolic tangent, and its slope.
float gelu(float x) { return 0.5F * x * (1.0F + std::tanh(0.7978845608F * (x + 0.044715F * x * x * x))); }
float gelu_slope(float x) {
    const float t = std::tanh(0.7978845608F * (x + 0.044715F * x * x * x));
    const float inner = 0.7978845608F * (1.0F + 3.0F * 0.044715F * x * x);
    return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner;
}

/// The product itself, when its stream gets to it.
template <class T>
struct LtProduct {
    Shape shape;
    float alpha, beta;
    const T* a;
    const T* b;
    const T* c;
    T* d;
    void* workspace;
    std::size_t garbage;

    void operator()() const {
        std::memset(workspace, 0xff, garbage);
        const Description& how = shape.how;
        const auto at = [](const T* data, const Layout& of, std::int32_t op, std::size_t row, std::size_t column) {
            const auto leading = static_cast<std::size_t>(of.leading);
            return static_cast<float>(data[op == CUBLAS_OP_N ? column * leading + row : row * leading + column]);
        };
        for (std::size_t column = 0; column < shape.n; ++column) {
            for (std::size_t row = 0; row < shape.m; ++row) {
                float sum = 0;
                for (std::size_t i = 0; i < shape.k; ++i) {
                    sum += at(a, shape.a, how.ops[0], row, i) * at(b, shape.b, how.ops[1], i, column);
                }
                float value = alpha * sum;
                if (beta != 0) { value += beta * at(c, shape.c, CUBLAS_OP_N, row, column); }
                if (how.has_bias()) { value += static_cast<float>(static_cast<const T*>(how.bias)[row]); }
                T* const aux = how.has_aux() ? static_cast<T*>(how.aux) +
                                                   column * static_cast<std::size_t>(how.aux_leading) + row
                                             : nullptr;
                if (how.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
                    *aux = static_cast<T>(value);
                    value = gelu(value);
                }
                if (how.epilogue == CUBLASLT_EPILOGUE_DGELU) { value *= gelu_slope(static_cast<float>(*aux)); }
                d[column * static_cast<std::size_t>(shape.d.leading) + row] = static_cast<T>(value);
            }
        }
    }
};

}  // namespace
}  // namespace standin

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t leading) {
    using namespace standin;
    return write(layout, Layout{type, rows, columns, leading});
}
cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t description, cublasComputeType_t compute,
                                      cudaDataType_t scale) {
    using namespace standin;
    return write(description, Description{compute, scale});
}
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
    using namespace standin;
    return write(preference, Preference{});
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
    using namespace standin;
    if (description == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    auto inner = read<Description>(description);
    const auto status = [&] {
        switch (attribute) {
            case CUBLASLT_MATMUL_DESC_TRANSA:
                return set(inner.ops[0], value, bytes);
            case CUBLASLT_MATMUL_DESC_TRANSB:
                return set(inner.ops[1], value, bytes);
            case CUBLASLT_MATMUL_DESC_EPILOGUE:
                return set(inner.epilogue, value, bytes);
            case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
                return set(inner.bias, value, bytes);
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
                return set(inner.aux, value, bytes);
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
                return set(inner.aux_leading, value, bytes);
        }
        return CUBLAS_STATUS_INVALID_VALUE;
    }();
    static_cast<void>(write(description, inner));
    return status;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
    using namespace standin;
    if (preference == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    auto inner = read<Preference>(preference);
    const bool of_workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    const auto number = static_cast<std::size_t>(attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
    if (!of_workspace && number >= inner.alignments.size()) { return CUBLAS_STATUS_INVALID_VALUE; }
    const cublasStatus_t status =
        of_workspace ? set(inner.workspace, value, bytes) : set(inner.alignments[number], value, bytes);
    static_cast<void>(write(preference, inner));
    return status;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
    using namespace standin;
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    if (most < 1 || results == nullptr || found == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    *found = 0;
    const Shape shape = Shape::of(description, a, b, c, d);
    if (const cublasStatus_t status = shape.status(); status != CUBLAS_STATUS_SUCCESS) { return status; }
    const auto asked = read<Preference>(preference);
    const bool whole_accesses = std::all_of(asked.alignments.begin(), asked.alignments.end(),
                                            [](std::uint32_t alignment) { return alignment % 16 == 0; }) &&
                                is_aligned(shape.how.bias, 16) && is_aligned(shape.how.aux, 16);
    const cudaError_t there = cuda_call("cublasLtMatmulAlgoGetHeuristic", Needs::device,
                                        [](State&, Lock&, ThreadState&) { return cudaSuccess; });
    if (!whole_accesses || there != cudaSuccess) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    results[0] = {};
    results[0].workspaceSize = std::min<std::size_t>(asked.workspace, 64);
    const auto extent = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
    *found = 1;
    return write(&results[0].algo, Algorithm{results[0].workspaceSize, extent(shape.m), extent(shape.n),
                                             extent(shape.k), shape.how.epilogue, asked.alignments, chosen_mark});
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
    using namespace standin;
    if (handle == nullptr) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    if (alpha == nullptr || beta == nullptr || algorithm == nullptr) { return CUBLAS_STATUS_INVALID_VALUE; }
    const Shape shape = Shape::of(description, a_layout, b_layout, c_layout, d_layout);
    if (const cublasStatus_t status = shape.status(); status != CUBLAS_STATUS_SUCCESS) { return status; }
    const auto chosen = read<Algorithm>(algorithm);
    const std::array<std::pair<const void*, const Layout*>, 4> matrices{
        {{a, &shape.a}, {b, &shape.b}, {c, &shape.c}, {d, &shape.d}}};
    bool fits = chosen.chosen == chosen_mark && chosen.m == shape.m && chosen.n == shape.n && chosen.k == shape.k &&
                chosen.epilogue == shape.how.epilogue && workspace_bytes >= chosen.workspace &&
                is_aligned(workspace, 256) && lies_on_device(workspace, workspace_bytes) &&
                (c != d || shape.c.leading == shape.d.leading);
    for (std::size_t i = 0; i < matrices.size(); ++i) {
        const auto& [data, layout] = matrices[i];
        fits = fits && is_aligned(data, chosen.alignments[i]) && lies_on_device(data, layout->bytes());
    }
    const Layout aux{shape.d.type, shape.m, shape.n, shape.how.aux_leading};
    const Layout bias{shape.d.type, shape.m, 1, static_cast<std::int64_t>(shape.m)};
    fits = fits &&
           (!shape.how.has_aux() || (is_aligned(shape.how.aux, 16) && lies_on_device(shape.how.aux, aux.bytes())));
    fits = fits && (!shape.how.has_bias() ||
                    (is_aligned(shape.how.bias, 16) && lies_on_device(shape.how.bias, bias.bytes())));
    if (!fits || lies_on_device(alpha, 1) || lies_on_device(beta, 1)) { return CUBLAS_STATUS_INVALID_VALUE; }
    const cudaError_t error =
        cuda_call("cublasLtMatmul", Needs::device, [&](State& s, Lock& lock, ThreadState& thread) {
            cudaError_t wrong = cudaSuccess;
            CUstream_st* const in = find_stream(s, stream, wrong);
            if (in == nullptr) { return wrong; }
            if (in->device != thread.device) { return cudaErrorInvalidResourceHandle; }
            // Made again at every launch of a graph that it is captured into.
            const auto product = [=, by = *static_cast<const float*>(alpha),
                                  old = *static_cast<const float*>(beta)](auto element) {
                using T = decltype(element);
                return std::make_unique<Work>(LtProduct<T>{shape, by, old, static_cast<const T*>(a),
                                                           static_cast<const T*>(b), static_cast<const T*>(c),
                                                           static_cast<T*>(d), workspace, chosen.workspace});
            };
            return submit(s, lock, *in, [product, type = shape.d.type](State& to, CUstream_st& queue) {
                push(to, queue, type == CUDA_R_16BF ? product(shardkit::bf16{}) : product(float{}));
            });
        });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
