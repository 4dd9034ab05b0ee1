// SPDX-License-Identifier: Apache-2.0
// overhead_counted CASE wrapped|bare ELEMENTS TIMES: makes the calls and nothing else, on one rank, for a tool that
// counts instructions.
#include <stdexcept>
#include <string>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "console.hpp"
#include "make_overhead_case.hpp"

int main(int count, char** arguments) {
    using namespace benchmarks;
    return peers::run_program("overhead_counted", count, arguments, [](const peers::Command& words) {
        const std::string& side = peers::word_at(words, 2);
        if (side != "wrapped" && side != "bare") { throw std::invalid_argument("expected wrapped or bare"); }
        shardkit::self::run(shardkit::DeviceMesh<1>{}, [&](shardkit::Rank& rank) {
            const auto counted =
                peers::make_overhead_case(rank, peers::word_at(words, 1), peers::number_at(words, 3));
            const std::size_t times = peers::number_at(words, 4);
            side == "wrapped" ? counted->wrapped(times) : counted->bare(times);
            peers::answer({{"verbs", counted->verbs()}});
        });
    });
}
