// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of the example trainer's own reductions must fail: two ranks against one, and the
// number of collectives that a step reports.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/full_shard.hpp>

#include "program/trainer.hpp"

using namespace train_gpt;

namespace {

Results train_on(std::size_t ranks, const std::vector<std::uint8_t>& text) {
    Options options;
    options.mesh = {ranks, 1, 1};
    options.model = {8, 1, 8, 2, HeadKind::tied};
    options.batch = 4;
    options.steps = 3;
    options.dtype = Dtype::fp64;
    const Job job{options, text, {}, KeepParameters::no};
    Results results;
    results.losses.resize(options.steps);
    results.grad_norms.resize(options.steps);
    sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
        sk::Context<sk::threads::Engine>& context = rank;
        train_on_rank<double>(context, sk::FullShard{}, job, results);
    });
    return results;
}

}  // namespace

int main() {
    std::vector<std::uint8_t> text;
    for (std::size_t i = 0; i < 500; ++i) { text.push_back(static_cast<std::uint8_t>('a' + i * i % 26)); }
    const Results one = train_on(1, text);
    const Results two = train_on(2, text);
    for (std::size_t s = 0; s < one.losses.size(); ++s) {
        if (!(std::abs(one.losses[s] - two.losses[s]) < 1e-11)) {
            std::printf("loss of step %zu on two ranks is %.17g, expected %.17g\n", s, two.losses[s], one.losses[s]);
            return 1;
        }
    }
    for (const CollectiveCount& count : two.collectives) {
        // The norm's and the loss's.
        if (count.verb == "all_reduce" && count.count == 2) {
            std::puts("two ranks agree with one");
            return 0;
        }
    }
    std::puts("a step did not report two all-reduces");
    return 1;
}
