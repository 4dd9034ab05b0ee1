// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/device/launches.hpp>
#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/rank/launch_batch.hpp>
#include <shardkit/rank/rank.hpp>

#include "unit/backend/host/batched_kernels.hpp"

/// One rank on a device without a GPU, which runs in the caller and counts what is launched.
namespace counting {

namespace sk = shardkit;

struct Launches {
    std::size_t all = 0;
    std::size_t copies = 0;  ///< that the host waits for
    std::size_t batches = 0;
    std::size_t pieces = 0;           ///< of norms
    std::vector<std::size_t> ranges;  ///< of each update alone
};
inline Launches launches;
inline bool dry = false;  ///< nothing that is launched runs

/// What kernels are given to.
struct Counted {
    static void synchronize() noexcept {}
    template <class Work>
    static void submit(const Work& work) {
        ++launches.all;
        if (!dry) { work(); }
    }
};

struct Kernels : sk::test::BatchedKernels<Counted> {
    using Base = sk::test::BatchedKernels<Counted>;

    template <class T>
    static void norm_partial(Counted stream, std::span<const sk::engine::NormPiece<T>> pieces,
                             sk::IndexRange positions, const double* scale, double* into) {
        launches.pieces += pieces.size();
        Base::norm_partial(stream, pieces, positions, scale, into);
    }
    template <class Update, class Spans>
    static void update(Counted stream, std::span<const sk::rules::UpdateRange> ranges, const Update* updates,
                       const std::uint32_t* skip, const Spans& spans) {
        launches.ranges.push_back(ranges.size());
        Base::update(stream, ranges, updates, skip, spans);
    }
    template <class Entry>
    static void update_batch(Counted stream, const sk::engine::LaunchBatch<Entry>& batch) {
        ++launches.batches;
        Base::update_batch(stream, batch);
    }
};

/// The device's stream, whose work is over when it is given.
class Queue final : public sk::engine::WorkQueue {
  public:
    Queue() noexcept : WorkQueue(/*on_device=*/true) {}

    bool in_verb = false;

    std::uint64_t submit(const Function& function) override {
        if (!in_verb) { throw std::logic_error("a function of the host was given to a device"); }
        sk::host::detail::Command command;
        command.set(function);
        command();
        return 0;
    }
    sk::Event record() noexcept override { return {}; }
    void wait(const sk::Event& /*event*/) noexcept override {}
    void synchronize(sk::SourceLocation /*where*/) override {}
    void synchronize(const sk::Event& /*event*/, sk::SourceLocation /*where*/) override {}
    void settle() noexcept override {}
    void settle(const sk::Event& /*event*/) noexcept override {}
    void copy(const void* from, void* to, std::size_t bytes, sk::SourceLocation /*where*/) override {
        ++launches.copies;
        std::memcpy(to, from, bytes);
    }
};

/// The verbs of a rank alone, whose memory is the device's.
class Verbs final : public sk::host::DecoratedVerbs, public sk::host::DeviceMemory {
  public:
    Verbs(std::shared_ptr<const sk::host::Verbs> verbs, Queue& queue)
        : DecoratedVerbs(std::move(verbs)), queue_(queue) {}

    sk::Streams streams() const noexcept override { return {stream(), stream()}; }
    std::shared_ptr<void> place(std::size_t bytes) const override {
        const auto memory = std::make_shared<sk::HostBuffer<std::uint8_t>>(bytes);
        return {memory, memory->data()};
    }
    std::shared_ptr<void> place_local(std::size_t bytes) const override { return place(bytes); }

    const sk::host::DeviceMemory* device_memory() const noexcept override { return this; }
    void require_memory(const void*, std::size_t, std::string_view, sk::SourceLocation) const override {}
    void require_host_memory(const void*, std::size_t, std::string_view, sk::SourceLocation) const override {}
    std::unique_ptr<sk::engine::MemoryCopies> memory_copies(const sk::Stream&, sk::SourceLocation) const override {
        return nullptr;  // nothing is saved
    }
    std::shared_ptr<void> place_on_host(std::size_t bytes) const override { return place(bytes); }
    sk::Stream copy_stream(sk::engine::LinkWay /*way*/) const noexcept override { return stream(); }
    sk::Stream host_stream() const noexcept override { return stream(); }

  private:
    sk::Stream stream() const noexcept { return sk::Stream(queue_); }
    void around(const sk::Call& /*call*/, sk::host::Memory /*delivered*/, const sk::Stream& /*stream*/,
                const Inner& inner) const override {
        queue_.in_verb = true;
        inner();
        queue_.in_verb = false;
    }
    std::shared_ptr<const sk::host::Verbs> decorate(std::shared_ptr<const sk::host::Verbs> verbs) const override {
        return std::make_shared<const Verbs>(std::move(verbs), queue_);
    }

    Queue& queue_;
};

/// f(rank) in this thread, with a rank on the device.
template <class F>
void on_device(const F& f) {
    sk::self::World world;
    Queue queue;
    const sk::Communicator comm(std::make_shared<const Verbs>(world.communicator().verbs(), queue));
    sk::MeshRank<sk::DeviceMesh<1>> rank{{}, comm, {}, comm.streams()};
    f(rank);
}

}  // namespace counting

/// What backend/cub/launches.cuh is where there is a GPU.
template <class Kernel>
struct shardkit::engine::DeviceLaunchOf {
    static void run(const shardkit::Stream& /*stream*/, const Kernel& kernel) {
        kernel.template on<counting::Kernels>(counting::Counted{});
    }
};
/// A file that begins a rule's steps launches its updates, too.
template <class Rule>
struct shardkit::engine::DeviceLaunchOf<shardkit::engine::ForEachIndex<shardkit::detail::BeginUpdatesAs<Rule>>> {
    using Kernel = shardkit::engine::ForEachIndex<shardkit::detail::BeginUpdatesAs<Rule>>;
    template <class... T>
    static void launch_updates() {
        static_cast<void>(&DeviceLaunchIs<RuleUpdates<Rule, shardkit::detail::UpdateTypes<T...>>>::known);
    }
    static void run(const shardkit::Stream& /*stream*/, const Kernel& kernel) {
        if constexpr (shardkit::detail::StorageOf<Rule>::type::format == shardkit::StateFormat::full) {
            launch_updates<double, double, double>();
        }
        launch_updates<float, float, float>();
        launch_updates<float, shardkit::bf16, float>();
        kernel.template on<counting::Kernels>(counting::Counted{});
    }
};
/// One rank reduces nothing.
template <class In, class Out>
struct shardkit::engine::DeviceLaunchOf<shardkit::engine::Reduce<In, Out>>;
