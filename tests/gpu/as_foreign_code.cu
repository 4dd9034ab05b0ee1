// SPDX-License-Identifier: Apache-2.0
// What CUDA code bases define before they include anything; compiled with warnings as errors. The macros are theirs
// again behind the headers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <utility>
#include <vector>

#define check(x) checked_by_the_user((x), __FILE__, __LINE__)
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))

#include <shardkit/backend/nccl/kernels_for.cuh>
#include <shardkit/nccl.hpp>
#include <shardkit/shardkit.hpp>

constexpr int checked_by_the_user(int code, const char* /*file*/, int /*line*/) { return code + 1; }
static_assert(check(1) == 2 && CEIL_DIV(7, 2) == 4 && min(3, 4) + max(3, 4) == 7);

namespace sk = shardkit;
using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;

// Warned of a value that was thrown away (#2810-D), where it is assigned.
void prefetch(std::vector<Layer>& layers) {
    auto next = layers[0].begin_unshard();
    for (std::size_t i = 0; i < layers.size(); ++i) {
        auto window = std::move(next).wait();
        if (i + 1 < layers.size()) { next = layers[i + 1].begin_unshard(); }
        layers[i].reshard(std::move(window));
        window = layers[0].unshard();
    }
}

// The toolkit's types of 16 bits, as llm.c's floatX.
static_assert(sk::FloatingElement<__nv_bfloat16> && sk::FloatingElement<__half>);
static_assert(sk::element_type_of<__nv_bfloat16> == sk::ElementType::bf16);
template <class E>
using Block = sk::Sharded<sk::TensorList<E>, sk::FullShard>;
template <class E>
void train(Block<E>& block) {
    sk::Model model{block};
    sk::AdamW optimizer(model);
    sk::Accumulation accumulation(model);
    auto gradients = accumulation.gradients(block);
    E* const pointer = gradients.view(0);
    static_cast<void>(pointer);
    accumulation.add(std::move(gradients));
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
}
template void train<__nv_bfloat16>(Block<__nv_bfloat16>&);
template void train<__half>(Block<__half>&);
