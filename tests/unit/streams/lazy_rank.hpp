// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/rank/rank_options.hpp>

namespace lazy {

namespace sk = shardkit;

/// When a stream runs what is given to it: at once, or as late as its order allows, that is when somebody waits for
/// it. Work that a missing wait lets run too late (or too early) then does so every time.
enum class Pace : unsigned char { eager, lazy };

/// A queue of host work that behaves like an asynchronous stream in the least favourable way.
class Queue final : public sk::engine::WorkQueue {
  public:
    explicit Queue(Pace its = Pace::eager) noexcept : pace(its) {}

    Pace pace;
    /// Returns whether all work was run.
    bool idle() const noexcept { return done_ == work_.size(); }

    std::uint64_t submit(const Function& function) override {
        work_.emplace_back().set(function);
        if (pace == Pace::eager) { run_until(work_.size()); }
        return work_.size();
    }
    sk::Event record() noexcept override { return {*this, work_.size()}; }
    void wait(const sk::Event& event) noexcept override {
        submit([event] { static_cast<Queue*>(event.queue())->run_until(event.point()); });
    }
    void synchronize(sk::SourceLocation /*where*/) override { run_until(work_.size()); }
    void synchronize(const sk::Event& event, sk::SourceLocation /*where*/) override { settle(event); }
    void settle() noexcept override { run_until(work_.size()); }
    void settle(const sk::Event& event) noexcept override {
        if (event.queue() == this) { run_until(event.point()); }
    }

  private:
    void run_until(std::uint64_t position) {
        while (done_ < position) {
            auto next = work_[done_];
            ++done_;
            next();
        }
    }

    std::deque<sk::host::detail::Command> work_;
    std::uint64_t done_ = 0;
};

/// The streams of a rank and its world, which outlive it.
struct Place {
    sk::self::World its_world;
    Queue compute;
    Queue communication;
    Queue reduction;
};

/// One rank whose verbs are copies that run when their stream gets to them.
class Rank : public Place, public sk::MeshRank<sk::DeviceMesh<1>> {
  public:
    using Decorate = sk::Communicator (*)(const sk::Communicator& world);

    Rank(
        Pace of_compute, Pace of_communication, Pace of_reduction, sk::RankOptions options = {},
        Decorate decorate = [](const sk::Communicator& world) { return world; })
        : Place{{}, Queue(of_compute), Queue(of_communication), Queue(of_reduction)},
          sk::MeshRank<sk::DeviceMesh<1>>({}, decorate(its_world.communicator()), options,
                                          {sk::Stream(compute), sk::Stream(communication), sk::Stream(reduction)}) {}
};

}  // namespace lazy
