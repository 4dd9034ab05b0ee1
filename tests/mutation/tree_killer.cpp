// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of sums along a tree must fail: the loops of the host and the functor of a GPU,
// against halves that are added here.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <shardkit/backend/cub/combine.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/core/bf16.hpp>

namespace sk = shardkit;

namespace {

/// Of many magnitudes, so that sums in another order have other bits.
template <class T>
T given(std::size_t rank, std::size_t i) {
    std::uint64_t x = rank * 4096 + i + 1;
    for (int round = 0; round < 3; ++round) { x = (x ^ x >> 29U) * 0xbf58476d1ce4e5b9ULL; }
    const auto magnitude = static_cast<float>(1U << (x & 15U));
    return static_cast<T>((static_cast<float>(x >> 40U) / 16777216.0F - 0.5F) * magnitude);
}
template <class T>
float halves(std::size_t first, std::size_t ranks, std::size_t i) {
    if (ranks == 1) { return static_cast<float>(given<T>(first, i)); }
    return halves<T>(first, ranks / 2, i) + halves<T>(first + ranks / 2, ranks / 2, i);
}

template <class T>
float in_turn(std::size_t ranks, std::size_t i) {
    auto sum = static_cast<float>(given<T>(0, i));
    for (std::size_t q = 1; q < ranks; ++q) { sum += static_cast<float>(given<T>(q, i)); }
    return sum;
}

/// The sums of the rows that a rank receives in an exchange.
template <template <class, class> class Added, class T>
std::vector<float> added(const std::vector<T>& gathered, std::size_t ranks, std::size_t count) {
    std::vector<float> sums(count + 1, -1);
    const Added<T, float> rows{{gathered.data(), ranks, count, sums.data()}};
    for (std::uint64_t index = 0; index < rows.indices(); ++index) { rows(index); }
    if (sums[count] != -1) {
        std::puts("an element behind the last one is written");
        std::exit(1);
    }
    return sums;
}

template <class T>
void check(std::size_t ranks) {
    constexpr std::size_t count = 1513;  // a block, whole tiles, and a rest
    constexpr std::size_t stride = sk::gpu::detail::row_stride(count);
    std::vector<T> gathered(ranks * stride);
    for (std::size_t q = 0; q < ranks; ++q) {
        for (std::size_t i = 0; i < count; ++i) { gathered[q * stride + i] = given<T>(q, i); }
    }
    const bool tree = (ranks & (ranks - 1)) == 0;
    std::vector<float> of_host(count);
    if (tree) {
        sk::host::detail::reduce_in_rank_order(
            sk::host::detail::reducer_of<T, float>, sk::ReduceOp::tree_sum, ranks, count,
            [&](std::size_t q) { return &gathered[q * stride]; }, sk::host::detail::Result<float>{of_host.data()});
    }
    const std::vector<float> of_device = !tree       ? of_host
                                         : ranks < 8 ? added<sk::gpu::detail::AddedAlongTree>(gathered, ranks, count)
                                                     : added<sk::gpu::detail::AddedByEights>(gathered, ranks, count);
    if (ranks == 8 && added<sk::gpu::detail::AddedAlongTree>(gathered, ranks, count) != of_device) {
        std::puts("the two kernels of 8 ranks differ");
        std::exit(1);
    }
    const std::vector<float> of_sum = added<sk::gpu::detail::AddedInOrder>(gathered, ranks, count);
    for (std::size_t i = 0; i < count; ++i) {
        const float expected = tree ? halves<T>(0, ranks, i) : 0;
        if (of_host[i] != expected || of_device[i] != expected || of_sum[i] != in_turn<T>(ranks, i)) {
            std::printf("element %zu of %zu ranks is %a and %a, expected %a; in rank order %a\n", i, ranks,
                        static_cast<double>(of_host[i]), static_cast<double>(of_device[i]),
                        static_cast<double>(expected), static_cast<double>(of_sum[i]));
            std::exit(1);
        }
    }
}

}  // namespace

int main() {
    for (const std::size_t ranks : {2U, 3U, 4U, 7U, 8U, 16U, 32U, 64U, 1024U}) {
        check<float>(ranks);
        check<sk::bf16>(ranks);
    }
    check<sk::bf16>(2 * sk::gpu::detail::AddedByEights<sk::bf16, float>::most);
    std::puts("trees are trees");
}
