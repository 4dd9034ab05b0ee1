// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/memory/slot_pool.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/rank/rank_options.hpp>
#include <shardkit/rank/require_stack.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/split.hpp>

// Defines the members of Rank.

namespace shardkit::detail {

/// What the groups of a rank share: communicators, pools of slots, and what parts of the library keep.
class RankResources : NotCopied {
  public:
    RankResources(const Communicator& of, std::size_t in_flight)
        : world(of), pools(in_flight, {&world, [](const void* comm, std::size_t bytes) {
                                           return static_cast<const Communicator*>(comm)->buffer<std::uint8_t>(bytes);
                                       }}) {
        std::vector<std::size_t> everyone(world.size());
        std::iota(everyone.begin(), everyone.end(), std::size_t{0});
        made.push_back({std::move(everyone), world});
    }

    static RankResources& of(const Rank& rank) noexcept { return *rank.resources_; }

    /// Returns the communicator over a group of ranks under a label, and makes it on first use.
    [[gnu::cold]] Communicator communicator(const RankGroup& group, const std::string& label, SourceLocation where) {
        std::vector<std::size_t> members = members_of(group);
        // Groups of one set of axes are translations of each other: all ranks find one, or none does. The last one
        // first: one that was adopted for all ranks is taken before the world.
        for (std::size_t i = made.size(); i-- > 0;) {
            if (made[i].members == members) { return made[i].communicator.named(label); }
        }
        Communicator split = shardkit::split(world, group.color(), group.index(), label, where);
        made.push_back({std::move(members), split});
        return split;
    }
    void adopt(const RankGroup& group, const Communicator& adopted, const std::string& label, SourceLocation where) {
        require_ranks(group, adopted, label, where);
        if (!first_group.empty()) {
            throw_usage_error(where, "adopt over ", label, ": '", first_group,
                              "' was made before, and groups that are split alike share its communicators; expected "
                              "adopt before the first Sharded");
        }
        made.push_back({members_of(group), adopted.named(label)});
    }

    /// Removes the path of a group that ends.
    void remove(const std::string& path) {
        const auto at = std::find(living.begin(), living.end(), &path);
        std::copy(at + 1, living.end(), at);
        living.pop_back();
    }

    struct Made {
        std::vector<std::size_t> members;
        Communicator communicator;
    };
    struct Kept {
        const char* type;
        std::shared_ptr<void> object;
    };
    template <class T>
    static inline char type_key{};  // its address identifies T

    const Communicator world;
    SlotPools pools;
    List<Made> made;  // the world first
    List<Kept> kept;
    List<const std::string*> living;  // paths of the groups
    std::string first_group;          // the path of the first one that was made, whose communicators others share

  private:
    static std::vector<std::size_t> members_of(const RankGroup& group) {
        std::vector<std::size_t> members(group.size());
        for (std::size_t i = 0; i < members.size(); ++i) { members[i] = group.member(i); }
        return members;
    }
    /// Checks that a communicator of the same journal, of which numbers of ranks mean the same, is over the group's.
    void require_ranks(const RankGroup& group, const Communicator& adopted, const std::string& label,
                       SourceLocation where) const {
        const engine::CommunicatorLabel& own = world.label();
        const engine::CommunicatorLabel& its = adopted.label();
        if (&own.journal != &its.journal || own.members->empty() || its.members->empty()) { return; }
        std::vector<std::size_t> expected = members_of(group);
        for (std::size_t& member : expected) { member = (*own.members)[member]; }
        if (*its.members == expected) { return; }
        throw_invalid_argument(where, "adopt over ", label, ": the communicator is of the world's ranks ",
                               listed(*its.members), ", expected ", listed(expected));
    }
    static std::string listed(const std::vector<std::size_t>& ranks) {
        std::string text;
        for (const std::size_t rank : ranks) { append(text, text.empty() ? "" : ", ", rank); }
        return text;
    }
};

}  // namespace shardkit::detail

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE Deadline::Deadline(const Communicator& comm, std::int64_t milliseconds, SourceLocation where)
    : journal_(comm.label().journal) {
    if (milliseconds <= 0) { throw_invalid_argument(where, "deadline: ", milliseconds, " ms, expected at least 1"); }
    before_ = journal_.exchange_limit(milliseconds);
}
SHARDKIT_CORE_INLINE Deadline::~Deadline() { journal_.exchange_limit(before_); }

[[gnu::cold]] SHARDKIT_CORE_INLINE Rank::Rank(const AxisGrid& grid, const Communicator& world, RankOptions options,
                                              Streams streams, SourceLocation where)
    : grid_(grid), options_(options), streams_(streams), rank_(world.rank()), world_size_(world.size()) {
    detail::require_stack(where);
    if (const bool device = streams.compute.on_device(); device != world.communication_stream().on_device()) {
        throw_usage_error(where, "a rank over a communicator of the engine ", world.engine_name(),
                          " with streams of ", device ? "a device" : "the host",
                          "; expected those of that engine, as run and nccl::make_rank give them");
    }
    if (world.size() != grid.size()) {
        throw_invalid_argument(where, "mesh ", grid.describe(), " has ", grid.size(), " ranks, but the ",
                               world.engine_name(), " world has ", world.size());
    }
    require_argument(options.offload_slot_bytes >= least_offload_slot_bytes, where,
                     "RankOptions: offload_slot_bytes is ", options.offload_slot_bytes, ", expected at least ",
                     least_offload_slot_bytes);
    if (options.in_flight == 0) { throw_invalid_argument(where, "RankOptions: in_flight is 0, expected at least 1"); }
    resources_ = detail::Owned<detail::RankResources>(new detail::RankResources(world, options.in_flight));
}

SHARDKIT_CORE_INLINE Rank::~Rank() {
    if (const auto& living = resources_->living; !living.empty()) {
        detail::end_program("rank ", rank_, " of mesh ", grid_.describe(), " ended before '", *living.back(), "'",
                            living.size() > 1 ? detail::concat(" and ", living.size() - 1, " more groups") : "",
                            " made with it");
    }
}

SHARDKIT_CORE_INLINE const Communicator& Rank::world() const noexcept { return resources_->world; }
SHARDKIT_CORE_INLINE void Rank::synchronize() const { streams_.synchronize(); }
SHARDKIT_CORE_INLINE void Rank::settle() const noexcept { streams_.settle(); }

SHARDKIT_CORE_INLINE AxisGrid Rank::split_data(std::size_t shard_group, SourceLocation where) const {
    return grid_.split_axis(Dp::name, shard_group, DpReplicate::name, DpShard::name, where);
}
SHARDKIT_CORE_INLINE Communicator Rank::communicator(const AxisGrid& split, const AxisNames& axes,
                                                     SourceLocation where) {
    return resources_->communicator(split.group(axes.span(), rank_, where), axes_label(split, axes, where), where);
}
SHARDKIT_CORE_INLINE Rank& Rank::adopt(const AxisGrid& grid, const AxisNames& axes, const Communicator& adopted,
                                       SourceLocation where) {
    const RankGroup group = grid.group(axes.span(), rank_, where);
    const std::string label = axes_label(grid, axes, where);
    require_argument(adopted.size() == group.size() && adopted.rank() == group.index(), where, "adopt over ", label,
                     ": the communicator has ", adopted.size(), " ranks and this is its rank ", adopted.rank(),
                     ", expected ", group.size(), " ranks and rank ", group.index());
    resources_->adopt(group, adopted, label, where);
    return *this;
}

SHARDKIT_CORE_INLINE TrafficLog& Rank::traffic() noexcept { return resources_->world.traffic(); }
SHARDKIT_CORE_INLINE std::vector<recorder::RecentCall> Rank::recent_calls() const {
    return resources_->world.label().journal.recorder().recent_calls();
}
SHARDKIT_CORE_INLINE void Rank::set_step(std::uint32_t step) noexcept {
    resources_->world.label().journal.recorder().set_step(step);
}

SHARDKIT_CORE_INLINE void Rank::require_same(std::string_view path, const Rank& other, std::string_view other_path,
                                             SourceLocation where) const {
    if (&other == this) { return; }
    throw_usage_error(where, "Model: '", path, "' is on mesh ", grid_.describe(), ", '", other_path, "' on mesh ",
                      other.grid_.describe(),
                      grid_.describe() == other.grid_.describe() ? " of another rank object" : "",
                      "; expected the groups of one model to be made with one rank");
}
SHARDKIT_CORE_INLINE void Rank::compare_calls(SourceLocation where) const {
    for (const auto& made : resources_->made) { made.communicator.compare_calls(where); }
}

SHARDKIT_CORE_INLINE detail::PlacedMemory Rank::place(std::size_t bytes) const {
    return resources_->world.place(bytes);
}
SHARDKIT_CORE_INLINE detail::PlacedMemory Rank::place_local(std::size_t bytes) const {
    return resources_->world.place_local(bytes);
}
SHARDKIT_CORE_INLINE void Rank::read(const void* from, std::span<std::byte> to) const {
    host::AnyKernels::copy_bytes(streams_.compute, from, to.data(), to.size());
}
SHARDKIT_CORE_INLINE void Rank::require_memory(const void* data, std::size_t bytes, std::string_view what,
                                               SourceLocation where) const {
    resources_->world.require_memory(data, bytes, what, where);
}
SHARDKIT_CORE_INLINE void Rank::require_host_memory(const void* data, std::size_t bytes, std::string_view what,
                                                    SourceLocation where) const {
    resources_->world.require_host_memory(data, bytes, what, where);
}

template <class T>
T& Rank::kept() {
    using Resources = detail::RankResources;
    auto& all = resources_->kept;
    for (const auto& kept : all) {
        if (kept.type == &Resources::type_key<T>) { return *static_cast<T*>(kept.object.get()); }
    }
    all.push_back({&Resources::type_key<T>, std::make_shared<T>(*this)});
    return *static_cast<T*>(all.back().object.get());
}

}  // namespace SHARDKIT_FACE

namespace shardkit::detail {
/// Lets the host read what the compute stream has written so far, where the engine's memory is the host's. On a
/// device, later work of the stream needs no wait.
inline void await_host_memory(const Rank& rank) {
    if (host_reads(rank.compute_stream())) { rank.compute_stream().synchronize(); }
}
}  // namespace shardkit::detail
