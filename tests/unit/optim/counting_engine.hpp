// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/backend/host/enqueued_kernels.hpp>
#include <shardkit/backend/self/engine.hpp>
#include <shardkit/comm/any_stream.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/engine.hpp>
#include <shardkit/rank/launch_batch.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/norm_sum.hpp>

#include "unit/backend/host/batched_kernels.hpp"

/// One rank on the host whose engine batches updates as a GPU's does, and counts what it launches.
namespace counting {

namespace sk = shardkit;

struct Launches {
    std::size_t all = 0;
    std::size_t copies_in = 0;
    std::size_t batches = 0;
    std::size_t pieces = 0;           ///< of norms
    std::vector<std::size_t> ranges;  ///< of each update alone
};
inline Launches launches;
inline bool dry = false;  ///< nothing that is launched runs

/// The host's stream, counted.
struct Counted {
    Counted(const sk::AnyStream& /*stream*/) {}  // implicit: kernels get the engine's
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
    static void copy_in(Counted stream, std::span<const T> from, std::span<T> to) {
        ++launches.copies_in;
        Base::copy_in(stream, from, to);
    }
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

struct Engine : sk::self::Engine {
    using Kernels = counting::Kernels;
};
static_assert(sk::engine::StepKernels<Engine> && sk::detail::BatchesUpdates<Engine, sk::Precision<float>>);

/// Neither batches nor kernels by index: the least that trains.
struct PlainKernels : sk::host::EnqueuedKernels<sk::AnyStream> {
    static constexpr int for_each_index = 0;
};
struct PlainEngine : sk::self::Engine {
    using Kernels = PlainKernels;
};
static_assert(sk::engine::StepKernels<PlainEngine> && !sk::detail::RunsByIndex<PlainEngine>);
static_assert(!sk::detail::BatchesUpdates<PlainEngine, sk::Precision<float>>);

/// f(rank) in this thread.
template <class Engine, class F>
void on_one_rank(const F& f) {
    sk::self::World world;
    sk::Rank<Engine, sk::DeviceMesh<1>> rank{{}, sk::self::Communicator(world), {}, {}};
    f(rank);
}

}  // namespace counting
