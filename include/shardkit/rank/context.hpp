// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/context.hpp>
#else
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/slot_pool.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/rank/deadline.hpp>
#include <shardkit/rank/rank_options.hpp>
#include <shardkit/rank/require_stack.hpp>
#include <shardkit/verbs/communicator.hpp>
#include <shardkit/verbs/split.hpp>

namespace shardkit {

/// One rank's view of a mesh, independent of the mesh's static type: its place, communicators, streams and pools. All
/// containers of the rank refer to it, so it cannot be moved or copied and must outlive them.
class Rank : shardkit::detail::NotCopied {
  public:
    /// Makes a rank's context on its mesh and world.
    /// @throws std::invalid_argument when the world and the mesh differ in size, or in_flight is 0; UsageError
    ///         when the thread's stack is too small for a rank, or the streams work on other memory than the world
    Rank(const AxisGrid& grid, const Communicator& world, RankOptions options, Streams streams = {},
         SourceLocation where = SourceLocation::current());
    /// Ends the program when a group still exists, as its memory and streams end here.
    ~Rank();

    std::size_t rank() const noexcept { return world_.rank(); }
    std::size_t world_size() const noexcept { return world_.size(); }
    const AxisGrid& grid() const noexcept { return grid_; }
    const Communicator& world() const noexcept { return world_; }
    const RankOptions& options() const noexcept { return options_; }

    Stream compute_stream() const noexcept { return streams_.compute; }
    Stream communication_stream() const noexcept { return streams_.communication; }
    Stream reduction_stream() const noexcept { return streams_.reduction; }
    const Streams& streams() const noexcept { return streams_; }
    /// Makes the host wait for all work of the streams, even if one of them reports a failure.
    void synchronize() const { streams_.synchronize(); }
    /// Waits likewise, but does not throw. An exception of that work comes out of the next wait; if a stream cannot
    /// keep it, it is dropped.
    void settle() const noexcept { streams_.settle(); }

    /// Returns the communicator over AxisSet's ranks that share this rank's other coordinates, in AxisSet's order.
    /// `shard_group` splits dp into dp_replicate and dp_shard; pass dp where no policy splits it. The first use is
    /// collective over the world, then it is cached. A group that equals one already made, including the world,
    /// shares it: a mesh of one axis splits at most once, for groups of a single rank.
    template <class AxisSet>
    Communicator communicator(std::size_t shard_group, SourceLocation where = SourceLocation::current()) {
        const AxisGrid split = grid_.split_axis(Dp::name, shard_group, DpReplicate::name, DpShard::name, where);
        return communicator(split, AxisSet{}, where);
    }
    /// Returns the communicator over axes chosen at run time, of this mesh or of this mesh with an axis split.
    Communicator communicator(const AxisGrid& split, const AxisNames& axes,
                              SourceLocation where = SourceLocation::current()) {
        return communicator(split.group(axes.span(), rank(), where), axes_label(split, axes, where), where);
    }
    /// Returns the communicator over axes of the mesh itself, for example Axes<Dp>{} or, flattened, Axes<Dp, Cp>{}.
    template <class AxisSet>
    Communicator sub_mesh(AxisSet axes = {}, SourceLocation where = SourceLocation::current()) {
        return communicator(grid_, axes, where);
    }

    /// Returns what this rank has communicated so far.
    TrafficLog& traffic() { return world_.traffic(); }

    /// Returns the last calls of this rank over groups of more than one rank, the oldest first, to find out what it
    /// did before an error.
    std::vector<recorder::RecentCall> recent_calls() const { return world_.label().journal.recent_calls(); }

    /// Says that the calls from now on belong to that step of the program, by which the flight recorder's reader
    /// tells them apart (who_is_missing). Every rank must say the same. Without it all calls belong to step 0.
    void set_step(std::uint32_t step) noexcept { world_.label().journal.recorder().set_step(step); }

    /// Lets this rank wait for others for so long at most, until the returned object ends, in place of the times in
    /// its engine's options: for a phase in which one rank works alone, as in an evaluation. Each rank that waits
    /// meanwhile calls it:
    ///     const auto patient = rank.deadline(30min);
    ///     if (rank.rank() == 0) { evaluate(); }
    ///     barrier(rank.world());
    /// Order:   it counts for waits that are going on while the object lives, of the streams too. Local.
    /// @throws  std::invalid_argument unless `limit` is positive
    Deadline deadline(std::chrono::milliseconds limit, SourceLocation where = SourceLocation::current()) const {
        return Deadline(&world_.label().journal, limit, where);
    }

    /// Checks that the groups at `path` and at `other_path`, made with `other`, were made with this same context.
    /// @throws UsageError
    void require_same(std::string_view path, const Rank& other, std::string_view other_path,
                      SourceLocation where) const;

    /// Compares the ranks' calls over the world and over every sub-mesh, as shardkit::compare_calls does. Optimizers
    /// do so in each step. Collective over the world.
    /// @throws CommError, on every rank of a group whose ranks disagree
    void compare_calls(SourceLocation where = SourceLocation::current()) const;

    /// Allocates zeroed memory of this rank for n elements that the engine's verbs and kernels can use.
    template <Element T>
    HostBuffer<T> buffer(std::size_t n) const {
        return world_.buffer<T>(n);
    }

    /// Allocates likewise for this rank's own kernels. Verbs take memory of `buffer`, which all ranks allocate in the
    /// same sizes and order; the size of this one may differ between ranks.
    template <Element T>
    HostBuffer<T> local_buffer(std::size_t n) const {
        return world_.local_buffer<T>(n);
    }

    /// Returns the value in the engine's memory at `value`.
    /// Order:   after all work that was given to the compute stream; the host waits for it.
    template <class T>
    T read(const T* value) const {
        T copy{};
        host::AnyKernels::copy_out(streams_.compute, std::span<const T>(value, 1), std::span<T>(&copy, 1));
        return copy;
    }

    /// Checks that the engine can work on the user's memory (a device cannot on host memory, for example).
    /// @throws std::invalid_argument that names `what`, what was given and what was expected
    void require_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const {
        world_.require_memory(data, bytes, what, where);
    }
    /// Checks that the host can work on the user's memory (which may be a device's, for example).
    /// @throws std::invalid_argument that names `what`, what was given and what was expected
    void require_host_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const {
        world_.require_host_memory(data, bytes, what, where);
    }

    /// Uses an existing communicator of the user for the sub-mesh over these axes, instead of making one. Call it
    /// before the first Sharded is made. `shard_group` is as for communicator(). Local; every rank must adopt the
    /// same sets of axes.
    ///     rank.adopt(Axes<Dp>{}, communicator);
    /// @throws std::invalid_argument unless it has as many ranks as the sub-mesh and this rank at the same place
    Rank& adopt(const AxisNames& axes, const Communicator& adopted, std::size_t shard_group,
                SourceLocation where = SourceLocation::current()) {
        return adopt(grid_.split_axis(Dp::name, shard_group, DpReplicate::name, DpShard::name, where), axes, adopted,
                     where);
    }
    /// Adopts a communicator for axes of the mesh itself.
    Rank& adopt(const AxisNames& axes, const Communicator& adopted,
                SourceLocation where = SourceLocation::current()) {
        return adopt(grid_, axes, adopted, where);
    }

    /// Returns this rank's object of type T, which a part of the library keeps here. It is made from this context on
    /// first use, and destroyed with it.
    /// Cost:    memory on first use alone
    template <class T>
    T& kept() {
        for (const Kept& kept : kept_) {
            if (kept.type == &type_key<T>) { return *static_cast<T*>(kept.object.get()); }
        }
        kept_.push_back({&type_key<T>, std::make_shared<T>(*this)});
        return *static_cast<T*>(kept_.back().object.get());
    }

  private:
    friend detail::Access;
    template <class T>
    static inline char type_key{};  // its address identifies T
    struct Kept {
        const char* type;
        std::shared_ptr<void> object;
    };
    struct Made {
        std::vector<std::size_t> members;
        Communicator communicator;
    };

    static std::vector<std::size_t> members_of(const RankGroup& group) {
        std::vector<std::size_t> members(group.size());
        for (std::size_t i = 0; i < members.size(); ++i) { members[i] = group.member(i); }
        return members;
    }
    Rank& adopt(const AxisGrid& grid, const AxisNames& axes, const Communicator& adopted, SourceLocation where) {
        const RankGroup group = grid.group(axes.span(), rank(), where);
        const std::string label = axes_label(grid, axes, where);
        if (adopted.size() != group.size() || adopted.rank() != group.index()) {
            throw_invalid_argument(where, "adopt over ", label, ": the communicator has ", adopted.size(),
                                   " ranks and this is its rank ", adopted.rank(), ", expected ", group.size(),
                                   " ranks and rank ", group.index());
        }
        add_world();
        made_.push_back({members_of(group), adopted.named(label)});
        return *this;
    }
    void add_world() {
        if (!made_.empty()) { return; }
        std::vector<std::size_t> everyone(world_.size());
        for (std::size_t i = 0; i < everyone.size(); ++i) { everyone[i] = i; }
        made_.push_back({std::move(everyone), world_});
    }
    Communicator communicator(const RankGroup& group, const std::string& label, SourceLocation where) {
        std::vector<std::size_t> members = members_of(group);
        add_world();
        // Groups of one set of axes are translations of each other: all ranks find one, or none does. The last one
        // first: one that was adopted for all ranks is taken before the world.
        for (std::size_t i = made_.size(); i-- > 0;) {
            if (made_[i].members == members) { return made_[i].communicator.named(label); }
        }
        Communicator made = shardkit::split(world_, group.color(), group.index(), label, where);
        made_.push_back({std::move(members), made});
        return made;
    }

    AxisGrid grid_;
    Communicator world_;
    Streams streams_;
    detail::SlotPools pools_;
    RankOptions options_;
    detail::List<Made> made_;
    detail::List<Kept> kept_;
    detail::List<const std::string*> living_;  // paths of the groups
};

inline Rank::Rank(const AxisGrid& grid, const Communicator& world, RankOptions options, Streams streams,
                  SourceLocation where)
    : grid_(grid),
      world_(world),
      streams_(streams),
      pools_(options.in_flight,
             {this, [](const void* self,
                       std::size_t bytes) { return static_cast<const Rank*>(self)->buffer<std::uint8_t>(bytes); }}),
      options_(options) {
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
    if (options.offload_slot_bytes < least_offload_slot_bytes) {
        throw_invalid_argument(where, "RankOptions: offload_slot_bytes is ", options.offload_slot_bytes,
                               ", expected at least ", least_offload_slot_bytes);
    }
    if (options.in_flight == 0) { throw_invalid_argument(where, "RankOptions: in_flight is 0, expected at least 1"); }
}

inline Rank::~Rank() {
    if (!living_.empty()) {
        detail::end_program("rank ", rank(), " of mesh ", grid_.describe(), " ended before '", *living_.back(), "'",
                            living_.size() > 1 ? detail::concat(" and ", living_.size() - 1, " more groups") : "",
                            " made with it");
    }
}

inline void Rank::require_same(std::string_view path, const Rank& other, std::string_view other_path,
                               SourceLocation where) const {
    if (&other == this) { return; }
    throw_usage_error(where, "Model: '", path, "' is on mesh ", grid_.describe(), ", '", other_path, "' on mesh ",
                      other.grid_.describe(),
                      grid_.describe() == other.grid_.describe() ? " of another rank object" : "",
                      "; expected the groups of one model to be made with one rank");
}

inline void Rank::compare_calls(SourceLocation where) const {
    if (made_.empty()) { world_.compare_calls(where); }
    for (const Made& made : made_) { made.communicator.compare_calls(where); }
}

namespace detail {
/// Lets the host read what the compute stream has written so far, where the engine's memory is the host's. On a
/// device, later work of the stream needs no wait.
inline void await_host_memory(const Rank& rank) {
    if (host_reads(rank.compute_stream())) { rank.compute_stream().synchronize(); }
}
}  // namespace detail

}  // namespace shardkit
#endif
