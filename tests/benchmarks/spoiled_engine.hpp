// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include <shardkit/backend/self/engine.hpp>

namespace benchmarks::policies {

/// One rank that alters what is gathered, while told to.
struct SpoiledCommunicator : shardkit::self::Communicator {
    static inline bool spoils = false;

    using shardkit::self::Communicator::Communicator;
    SpoiledCommunicator(const shardkit::self::Communicator& other) : shardkit::self::Communicator(other) {}
    SpoiledCommunicator named(std::string_view axes) const { return Communicator::named(axes); }
    SpoiledCommunicator split(std::size_t color, std::size_t key, std::string_view axes,
                              shardkit::SourceLocation where = shardkit::SourceLocation::current()) const {
        return Communicator::split(color, key, axes, where);
    }
    template <class T>
    void all_gather(std::span<const T> shard, std::span<T> full, Stream stream,
                    shardkit::SourceLocation where) const {
        Communicator::all_gather(shard, full, stream, where);
        if (spoils) { full[7] += T(0.125); }
    }
};
struct SpoiledEngine : shardkit::self::Engine {
    using Communicator = SpoiledCommunicator;
};
static_assert(shardkit::Engine<SpoiledEngine> && shardkit::engine::GroupVerbs<SpoiledEngine>);
static_assert(shardkit::engine::StepKernels<SpoiledEngine>);

}  // namespace benchmarks::policies
