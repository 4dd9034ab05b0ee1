// SPDX-License-Identifier: Apache-2.0
// A trainer of the compiled form that calls verbs itself; check_sums.py compiles it with -ffast-math, and expects the
// numbers of IEEE arithmetic in rank order. It makes and prints bits, of which no compiler may assume anything.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <shardkit/shardkit.hpp>
#include <shardkit/verbs.hpp>

namespace sk = shardkit;

int main() {
    sk::threads::run(sk::DeviceMesh<3>{}, [](sk::Rank& rank) {
        // 0.1, 1e8 and -1e8: their sum says in which order they were added. With a NaN on the second rank.
        constexpr std::uint32_t bits[] = {0x3dcccccd, 0x4cbebc20, 0xccbebc20};
        constexpr std::uint32_t nan = 0x7fc00000;
        const std::vector<float> values(300, std::bit_cast<float>(bits[rank.rank()]));
        const std::vector<float> broken(300, std::bit_cast<float>(rank.rank() == 1 ? nan : bits[rank.rank()]));
        std::vector<float> sum(300);
        std::vector<float> largest(300);
        std::vector<float> part(100);
        sk::all_reduce(rank.world(), sk::ReduceOp::sum, values, sum);
        sk::all_reduce(rank.world(), sk::ReduceOp::max, broken, largest);
        sk::reduce_scatter(rank.world(), sk::ReduceOp::min, broken, part);
        const std::vector<sk::bf16> halves(300, sk::bf16(0.25F));
        std::vector<sk::bf16> sum_of_halves(300);
        sk::all_reduce(rank.world(), sk::ReduceOp::sum, halves, sum_of_halves);
        if (rank.rank() == 0) {
            std::printf("%08x %08x %08x %04x\n", std::bit_cast<std::uint32_t>(sum[299]),
                        std::bit_cast<std::uint32_t>(largest[299]), std::bit_cast<std::uint32_t>(part[99]),
                        std::bit_cast<std::uint16_t>(sum_of_halves[299]));
        }
    });
}
