// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of faults on purpose must fail: a plan strikes once, on its rank, where it says.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "faults/faulty.hpp"

namespace sk = shardkit;

namespace {

void expect(bool condition, const char* what) {
    if (condition) { return; }
    std::puts(what);
    std::exit(1);
}

/// What rank 1 of two has after two sums of bytes and two buffers, and how the run ends.
std::string end_of(const char* plan, std::vector<std::uint8_t>& got, std::size_t strikes) {
    planted::Faults faults(planted::plan_of(plan));
    std::string text;
    try {
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            planted::with_faults(rank, faults, [&](auto& faulty) {
                std::vector<std::uint8_t> values(2, 1);
                sk::barrier(faulty.world());
                for (int i = 0; i < 2; ++i) {
                    const auto buffer = faulty.template buffer<float>(1);
                    sk::all_reduce_in_place(faulty.world(), sk::ReduceOp::max, values);
                }
                sk::barrier(faulty.world());
                if (rank.rank() == 1) { got = values; }
            });
        });
    } catch (const std::exception& error) { text = error.what(); }
    expect(faults.struck().size() == strikes, "another number of faults has struck");
    expect(!text.empty() || faults.most().calls == 4, "calls are not counted");
    expect(!text.empty() || faults.most().buffers == 2, "buffers are not counted");
    return text;
}

}  // namespace

int main() {
    std::vector<std::uint8_t> got;
    expect(end_of("", got, 0).empty() && got == std::vector<std::uint8_t>{1, 1}, "without a fault");
    expect(end_of("1:wrong_data:2:9", got, 1).empty() && got == std::vector<std::uint8_t>{1, 3}, "a bit flipped");
    expect(end_of("1:error:1:0", got, 1).starts_with("planted: rank 1: error after call 1, all_reduce"), "an error");
    expect(end_of("1:leave:1:0", got, 1).find("rank 1 returned before") != std::string::npos, "a rank that leaves");
    expect(end_of("0:out_of_memory:1:0", got, 1) == "std::bad_alloc", "no memory");
    expect(end_of("0:out_of_memory:5:0", got, 0).empty(), "no memory for a buffer that nobody takes");
    expect(end_of("2:error:1:0", got, 0).empty(), "a fault of no rank");
    expect(planted::plan_of(1, {.ranks = 9, .calls = 99}) != planted::plan_of(2, {.ranks = 9, .calls = 99}),
           "seeds do not matter");
}
