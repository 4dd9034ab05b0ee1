// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/launch.cuh>
#include <shardkit/shardkit.hpp>
#include <shardkit/tensor_parallel.hpp>

// What layers that tp splits give to Kernels::for_each_index, for tokens that are 32-bit numbers.

namespace sk = shardkit;
using shardkit::gpu::detail::DeviceLaunch;

#define FOR_EACH(...) \
    template void DeviceLaunch::operator()(std::uint64_t, const __VA_ARGS__&, std::string_view) const;
#define LOSS(A)                                         \
    FOR_EACH(sk::detail::LargestOfColumns<A>)           \
    FOR_EACH(sk::detail::LargestOfWorkers<A>)           \
    FOR_EACH(sk::detail::SumOfColumns<A>)               \
    FOR_EACH(sk::detail::SumOfWorkers<std::int32_t, A>) \
    FOR_EACH(sk::detail::LossOfToken<A>)                \
    FOR_EACH(sk::detail::GradientOfLogit<std::int32_t, A>)
#define EMBEDDING(T)                                                       \
    FOR_EACH(sk::detail::EmbedElement<std::int32_t, T, sk::Arithmetic<T>>) \
    FOR_EACH(sk::detail::EmbedRowsBackward<std::int32_t, T, sk::Arithmetic<T>>)

LOSS(float)
LOSS(double)
EMBEDDING(double)
EMBEDDING(float)
EMBEDDING(sk::bf16)
EMBEDDING(sk::fp16)
