// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/axis_grid.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank_options.hpp>

namespace shardkit {
class Communicator;
class TrafficLog;
namespace engine {
class Journal;
}
namespace recorder {
struct RecentCall;
}
namespace detail {
class RankResources;
}
}  // namespace shardkit

namespace shardkit SHARDKIT_FACE {

/// A type that arranges ranks: DeviceMesh, with static or dynamic extents.
template <class M>
concept MeshType = requires(const M mesh, SourceLocation where) {
    { mesh.grid(where) } -> std::convertible_to<AxisGrid>;
    { mesh.size() } -> std::convertible_to<std::size_t>;
};

/// How long a rank waits for others while this object lives, in place of the times in its engine's options:
/// `timeout`, and `finish_timeout` where there is one. Rank::deadline makes it. Of several, the one that was made
/// last counts. It is for each rank that waits in the phase; the one that lets the others wait needs none.
class [[nodiscard]] Deadline : detail::NotCopied {
  public:
    /// Begins for the rank that `comm` is a communicator of.
    /// @throws std::invalid_argument unless `milliseconds` is positive
    Deadline(const Communicator& comm, std::int64_t milliseconds, SourceLocation where);
    ~Deadline();

  private:
    engine::Journal& journal_;
    std::int64_t before_;
};

/// One rank's view of its mesh: its place, communicators, streams and pools. All containers of the rank refer to it,
/// so it cannot be moved or copied and must outlive them. An engine's `run` makes it.
class Rank : detail::NotCopied {
  public:
    /// Makes a rank of a mesh, or of other axes, and of its world. Who calls it includes verbs.hpp.
    /// @throws std::invalid_argument when the world and the mesh differ in size, or in_flight is 0; UsageError
    ///         when the thread's stack is too small for a rank, or the streams work on other memory than the world
    Rank(const AxisGrid& grid, const Communicator& world, RankOptions options = {}, Streams streams = {},
         SourceLocation where = SourceLocation::current());
    template <MeshType Mesh>
    Rank(const Mesh& mesh, const Communicator& world, RankOptions options = {}, Streams streams = {},
         SourceLocation where = SourceLocation::current())
        : Rank(AxisGrid(mesh.grid(where)), world, options, streams, where) {}
    /// Ends the program when a group still exists, as its memory and streams end here.
    ~Rank();

    std::size_t rank() const noexcept { return rank_; }
    std::size_t world_size() const noexcept { return world_size_; }
    const AxisGrid& grid() const noexcept { return grid_; }
    const RankOptions& options() const noexcept { return options_; }
    const Communicator& world() const noexcept;

    Stream compute_stream() const noexcept { return streams_.compute; }
    Stream communication_stream() const noexcept { return streams_.communication; }
    Stream reduction_stream() const noexcept { return streams_.reduction; }
    const Streams& streams() const noexcept { return streams_; }
    /// Makes the host wait for all work of the streams, even if one of them reports a failure.
    void synchronize() const;
    /// Waits likewise, but does not throw. An exception of that work comes out of the next wait; if a stream cannot
    /// keep it, it is dropped.
    void settle() const noexcept;

    /// Returns the communicator over AxisSet's ranks that share this rank's other coordinates, in AxisSet's order.
    /// `shard_group` splits dp into dp_replicate and dp_shard; pass dp where no policy splits it. The first use is
    /// collective over the world, then it is cached. A group that equals one already made, including the world,
    /// shares it: a mesh of one axis splits at most once, for groups of a single rank. Who calls it includes
    /// verbs.hpp.
    template <class AxisSet, class Made = Communicator>
    Made communicator(std::size_t shard_group, SourceLocation where = SourceLocation::current()) {
        return communicator(split_data(shard_group, where), AxisSet{}, where);
    }
    /// Returns the communicator over axes chosen at run time, of this mesh or of this mesh with an axis split.
    Communicator communicator(const AxisGrid& split, const AxisNames& axes,
                              SourceLocation where = SourceLocation::current());
    /// Returns the communicator over axes of the mesh itself, for example Axes<Dp>{} or, flattened, Axes<Dp, Cp>{}.
    template <class AxisSet, class Made = Communicator>
    Made sub_mesh(AxisSet axes = {}, SourceLocation where = SourceLocation::current()) {
        return communicator(grid_, axes, where);
    }

    /// Returns what this rank has communicated so far. Who reads it includes plan.hpp, or comm/traffic_log.hpp.
    TrafficLog& traffic() noexcept;

    /// Returns the last calls of this rank over groups of more than one rank, the oldest first, to find out what it
    /// did before an error. Who reads them includes comm/journal.hpp.
    std::vector<recorder::RecentCall> recent_calls() const;

    /// Says that the calls from now on belong to that step of the program, by which the flight recorder's reader
    /// tells them apart (who_is_missing). Every rank must say the same. Without it all calls belong to step 0.
    void set_step(std::uint32_t step) noexcept;

    /// Lets this rank wait for others for so long at most, until the returned object ends, in place of the times in
    /// its engine's options: for a phase in which one rank works alone, as in an evaluation. Each rank that waits
    /// meanwhile calls it:
    ///     const auto patient = rank.deadline(30min);
    ///     if (rank.rank() == 0) { evaluate(); }
    ///     barrier(rank.world());
    /// `limit` is a duration of std::chrono, of whole milliseconds or a longer unit.
    /// Order:   it counts for waits that are going on while the object lives, of the streams too. Local.
    /// @throws  std::invalid_argument unless `limit` is positive
    template <class Duration>
    Deadline deadline(const Duration& limit, SourceLocation where = SourceLocation::current()) const {
        using Unit = typename Duration::period;
        static_assert(1000 * Unit::num % Unit::den == 0 && std::is_integral_v<typename Duration::rep>,
                      "deadline: expected a number of milliseconds");
        return Deadline(world(), static_cast<std::int64_t>(limit.count()) * (1000 * Unit::num / Unit::den), where);
    }

    /// Checks that the groups at `path` and at `other_path`, made with `other`, were made with this same rank.
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
        return HostBuffer<T>::placed(n, [this](std::size_t bytes) { return place(bytes); });
    }

    /// Allocates likewise for this rank's own kernels. Verbs take memory of `buffer`, which all ranks allocate in the
    /// same sizes and order; the size of this one may differ between ranks.
    template <Element T>
    HostBuffer<T> local_buffer(std::size_t n) const {
        return HostBuffer<T>::placed(n, [this](std::size_t bytes) { return place_local(bytes); });
    }

    /// Returns the value in the engine's memory at `value`.
    /// Order:   after all work that was given to the compute stream; the host waits for it.
    template <class T>
    T read(const T* value) const {
        T copy{};
        read(value, std::as_writable_bytes(std::span(&copy, 1)));
        return copy;
    }

    /// Checks that the engine can work on the user's memory (a device cannot on host memory, for example).
    /// @throws std::invalid_argument that names `what`, what was given and what was expected
    void require_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const;
    /// Checks that the host can work on the user's memory (which may be a device's, for example).
    /// @throws std::invalid_argument that names `what`, what was given and what was expected
    void require_host_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const;

    /// Uses an existing communicator of the user for the sub-mesh over these axes, instead of making one. Call it
    /// before the first Sharded is made. `shard_group` is as for communicator(). Local; every rank must adopt the
    /// same sets of axes.
    ///     rank.adopt(Axes<Dp>{}, communicator);
    /// @throws std::invalid_argument unless it has as many ranks as the sub-mesh and this rank at the same place, and
    ///         where it is of this rank's world the same ranks; UsageError when a Sharded was made before
    Rank& adopt(const AxisNames& axes, const Communicator& adopted, std::size_t shard_group,
                SourceLocation where = SourceLocation::current()) {
        return adopt(split_data(shard_group, where), axes, adopted, where);
    }
    /// Adopts a communicator for axes of the mesh itself.
    Rank& adopt(const AxisNames& axes, const Communicator& adopted,
                SourceLocation where = SourceLocation::current()) {
        return adopt(grid_, axes, adopted, where);
    }

    /// Returns this rank's object of type T, which a part of the library keeps here. It is made from this rank on
    /// first use, and destroyed with it.
    /// Cost:    memory on first use alone
    template <class T>
    T& kept();

  private:
    friend detail::RankResources;

    AxisGrid split_data(std::size_t shard_group, SourceLocation where) const;
    Rank& adopt(const AxisGrid& grid, const AxisNames& axes, const Communicator& adopted, SourceLocation where);
    detail::PlacedMemory place(std::size_t bytes) const;
    detail::PlacedMemory place_local(std::size_t bytes) const;
    void read(const void* from, std::span<std::byte> to) const;

    AxisGrid grid_;
    RankOptions options_;
    Streams streams_;
    std::size_t rank_;
    std::size_t world_size_;
    detail::Owned<detail::RankResources> resources_;
};

/// A rank with its mesh's static extents, so that the compiler can refuse what does not fit the mesh. A function that
/// needs none of them takes a Rank.
template <class MeshT>
class MeshRank : public Rank {
  public:
    using Mesh = MeshT;

    /// Makes a rank of its mesh and world.
    /// @throws std::invalid_argument when the world has another size than the mesh
    MeshRank(const Mesh& mesh, const Communicator& world, RankOptions options = {}, Streams streams = {},
             SourceLocation where = SourceLocation::current())
        : Rank(mesh, world, options, streams, where), mesh_(mesh) {}

    const Mesh& mesh() const noexcept { return mesh_; }

  private:
    Mesh mesh_;
};

}  // namespace SHARDKIT_FACE

namespace shardkit::detail {

/// M could be the mesh argument of an engine's `run`, valid or not, and is not a rank. A trainer's own `run(rank,
/// ...)`, for which argument-dependent lookup also finds the engine's `run` by the rank's type, is therefore not
/// mistaken for it.
template <class M>
concept MayBeMesh = std::copy_constructible<M>;

/// Reports in one sentence that a mesh is expected, instead of the errors that another type causes.
template <class M>
struct MeshRules {
    static constexpr bool is_mesh = MeshType<M>;
    static_assert(is_mesh,
                  "run(mesh, f): the first argument is a mesh, as DeviceMesh<4>{} or DeviceMesh{number_of_ranks}");
};

/// Reports in one sentence that F cannot be called with a rank, as where it takes it by value.
template <class F, class Rank>
struct BodyRules {
    static constexpr bool takes_rank = std::is_invocable_v<F&, Rank&>;
    static_assert(takes_rank, "run(mesh, f): f is called with the rank, which it takes by reference: [](auto& rank)");
};

/// What each rank of a launch does, without its types. `finish`, unless null, waits for the rank's streams before
/// what it has ends.
struct RankBody {
    using Finish = void (*)(const Streams& streams, SourceLocation where);
    void (*call)(const void* body, const Communicator& world, const Streams& streams, Finish finish);
    const void* body;
    void operator()(const Communicator& world, const Streams& streams, Finish finish = nullptr) const {
        call(body, world, streams, finish);
    }
};

/// Makes a rank of the type, and calls a function of the user's with it.
template <class Rank, class F>
class UserBody {
    using Mesh = typename Rank::Mesh;

  public:
    UserBody(const Mesh& mesh, F& function, const RankOptions& options, SourceLocation where) noexcept
        : mesh_(mesh), function_(function), options_(options), where_(where) {}
    operator RankBody() const noexcept { return {&call, this}; }  // NOLINT(google-explicit-constructor)

  private:
    static void call(const void* body, const Communicator& world, const Streams& streams, RankBody::Finish finish) {
        const auto& given = *static_cast<const UserBody*>(body);
        Rank rank{given.mesh_, world, given.options_, streams, given.where_};
        if constexpr (BodyRules<F, Rank>::takes_rank) { given.function_(rank); }
        if (finish != nullptr) { finish(streams, given.where_); }
    }

    const Mesh& mesh_;
    F& function_;
    const RankOptions& options_;
    SourceLocation where_;
};

}  // namespace shardkit::detail

#ifndef SHARDKIT_COMPILED
#include <shardkit/rank/rank_resources.hpp>
#endif
