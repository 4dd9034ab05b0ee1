// SPDX-License-Identifier: Apache-2.0
// threads_collectives RANKS: measures collectives of the engine `threads`, and std::barrier, as its input says.
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../common/measure.hpp"
#include "../common/pin.hpp"
#include "serve_collectives.hpp"

namespace {

using namespace benchmarks;
using namespace benchmarks::peers;

/// The standard library's barrier, which all ranks share.
class StdBarrier final : public Workload {
  public:
    explicit StdBarrier(std::barrier<>& shared) : shared_(shared) {}
    void prepare() override {}
    void call(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) { shared_.arrive_and_wait(); }
    }
    std::uint64_t count_wrong() override { return 0; }

  private:
    std::barrier<>& shared_;
};

/// Gives every rank of a process the commands that the process receives. Who waits, sleeps: the processors belong to
/// the peer meanwhile.
class ThreadRelay {
  public:
    explicit ThreadRelay(std::size_t ranks) : together_(static_cast<std::ptrdiff_t>(ranks)) {}

    /// Collective over the ranks.
    Command next(std::size_t rank) {
        if (rank == 0) { line_ = read_line(); }
        together_.arrive_and_wait();
        Command mine = words_of(line_);
        together_.arrive_and_wait();
        return mine;
    }

  private:
    std::barrier<> together_;
    std::string line_;
};

void serve(std::size_t ranks) {
    ThreadRelay relay(ranks);
    std::barrier<> shared(static_cast<std::ptrdiff_t>(ranks));
    const cpu_set_t allowed = allowed_processors();
    shardkit::threads::run(shardkit::DeviceMesh(ranks), [&](shardkit::Rank& rank) {
        pin_to(allowed, rank.rank());
        if (rank.rank() == 0) { answer(facts({{"ranks", rank.world_size()}, {"pinned", true}})); }
        serve_collectives(
            rank, [&] { return relay.next(rank.rank()); },
            [&](const std::string& variant, const std::string& verb, std::size_t bytes) -> std::unique_ptr<Workload> {
                if (variant == "std") { return std::make_unique<StdBarrier>(shared); }
                return library_workload(rank, verb, bytes);
            });
    });
}

}  // namespace

int main(int count, char** arguments) {
    return run_program("threads_collectives", count, arguments,
                       [](const Command& words) { serve(number_at(words, 1)); });
}
