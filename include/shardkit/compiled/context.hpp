// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/compiled/interface.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/device_mesh.hpp>

namespace shardkit SHARDKIT_BUILD {

/// How long a rank waits for others while this object lives: see Rank::deadline.
class [[nodiscard]] Deadline {
  public:
    Deadline(const compiled::Rank& rank, std::int64_t milliseconds, SourceLocation where)
        : rank_(rank), before_(rank.begin_deadline(milliseconds, where)) {}
    Deadline(Deadline&&) = delete;
    ~Deadline() { rank_.end_deadline(before_); }

  private:
    const compiled::Rank& rank_;
    std::int64_t before_;
};

/// One rank's view of a mesh, independent of the mesh's static type, as rank/context.hpp describes it. An engine's
/// `run` makes it.
class Rank {
  public:
    explicit Rank(compiled::Rank& core) noexcept : core_(core) {}
    Rank(Rank&&) = delete;

    std::size_t rank() const noexcept { return core_.rank(); }
    std::size_t world_size() const noexcept { return core_.world_size(); }
    const AxisGrid& grid() const noexcept { return core_.grid(); }
    const RankOptions& options() const noexcept { return core_.options(); }

    /// Communicators. Who uses them includes verbs.hpp.
    const Communicator& world() const noexcept { return core_.world(); }
    template <class AxisSet, class Made = Communicator>
    Made sub_mesh(AxisSet axes = {}, SourceLocation where = SourceLocation::current()) {
        return communicator<Made>(grid(), axes, where);
    }
    template <class Made = Communicator>
    Made communicator(const AxisGrid& split, const AxisNames& axes,
                      SourceLocation where = SourceLocation::current()) {
        std::optional<Made> made;
        core_.communicator(
            split, axes,
            [](void* to, const Communicator& from) { static_cast<std::optional<Made>*>(to)->emplace(from); }, &made,
            where);
        return *std::move(made);
    }
    template <std::same_as<Communicator> Lent>
    Rank& adopt(const AxisNames& axes, const Lent& adopted, std::size_t shard_group,
                SourceLocation where = SourceLocation::current()) {
        core_.adopt(axes, adopted, shard_group, where);
        return *this;
    }
    template <std::same_as<Communicator> Lent>
    Rank& adopt(const AxisNames& axes, const Lent& adopted, SourceLocation where = SourceLocation::current()) {
        core_.adopt(axes, adopted, 0, where);
        return *this;
    }
    Streams streams() const noexcept { return {compute_stream(), communication_stream(), reduction_stream()}; }
    Stream compute_stream() const noexcept { return stream(compiled::StreamFor::compute); }
    Stream communication_stream() const noexcept { return stream(compiled::StreamFor::communication); }
    Stream reduction_stream() const noexcept { return stream(compiled::StreamFor::reduction); }

    void synchronize() const { core_.synchronize(); }
    void settle() const noexcept { core_.settle(); }
    /// Who reads it includes plan.hpp, or comm/traffic_log.hpp.
    TrafficLog& traffic() noexcept { return core_.traffic(); }
    /// Who reads them includes comm/journal.hpp.
    template <class Call = recorder::RecentCall>
    std::vector<Call> recent_calls() const {
        std::vector<Call> calls;
        core_.list_recent_calls(calls);
        return calls;
    }
    void set_step(std::uint32_t step) noexcept { core_.set_step(step); }
    template <Element T>
    HostBuffer<T> buffer(std::size_t n) const {
        return {allocate<T>(n, false), n};
    }
    template <Element T>
    HostBuffer<T> local_buffer(std::size_t n) const {
        return {allocate<T>(n, true), n};
    }
    template <class T>
    T read(const T* value) const {
        T copy{};
        core_.read(value, std::as_writable_bytes(std::span(&copy, 1)));
        return copy;
    }
    /// `limit`: whole milliseconds, or a longer unit of std::chrono.
    template <class Duration>
    Deadline deadline(const Duration& limit, SourceLocation where = SourceLocation::current()) const {
        using Unit = typename Duration::period;
        static_assert(1000 * Unit::num % Unit::den == 0, "deadline: expected a number of milliseconds");
        return Deadline(core_, static_cast<std::int64_t>(limit.count()) * (1000 * Unit::num / Unit::den), where);
    }
    void compare_calls(SourceLocation where = SourceLocation::current()) const { core_.compare_calls(where); }
    void require_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const {
        core_.require_memory(data, bytes, what, where);
    }
    compiled::Rank& core() const noexcept { return core_; }

  private:
    Stream stream(compiled::StreamFor which) const noexcept { return core_.stream(which); }
    template <class T>
    shardkit::detail::PlacedMemory allocate(std::size_t n, bool local) const {
        if (n > HostBuffer<T>::most) { compiled::refuse_use({}, "buffer: more elements than an address space has"); }
        return core_.allocate(n * sizeof(T), local);
    }

    compiled::Rank& core_;
};

/// A type that arranges ranks: DeviceMesh, with static or dynamic extents.
template <class M>
concept MeshType = requires(const M mesh, SourceLocation where) {
    { mesh.grid(where) } -> std::convertible_to<AxisGrid>;
    { mesh.size() } -> std::convertible_to<std::size_t>;
};

/// What one rank of a job works with: its context, and the mesh with its static extents.
template <class MeshT>
class MeshRank : public Rank {
  public:
    using Mesh = MeshT;

    MeshRank(compiled::Rank& core, const Mesh& mesh) noexcept : Rank(core), mesh_(mesh) {}
    /// Makes a rank over a communicator of its own, a part of another rank's world: see rank/rank.hpp. Who calls it
    /// includes verbs.hpp.
    template <std::same_as<Communicator> World>
    MeshRank(const Mesh& mesh, const World& world, RankOptions options = {},
             SourceLocation where = SourceLocation::current())
        : MeshRank(compiled::make_rank(mesh.grid(where), world, options, where), mesh) {}
    /// Takes one that an engine made.
    MeshRank(compiled::Rank* made, const Mesh& mesh) noexcept : MeshRank(*made, mesh) {
        made_ = compiled::Handle(made);
    }
    const Mesh& mesh() const noexcept { return mesh_; }

  private:
    compiled::Handle<compiled::Rank> made_;
    Mesh mesh_;
};
}  // namespace SHARDKIT_BUILD

namespace shardkit::detail SHARDKIT_BUILD {

/// Gives `run` a function of the user's without its type.
template <class Mesh, class F>
struct LaunchedBody {
    Mesh mesh;
    F& function;

    static void call(const void* body, compiled::Rank& core) {
        const auto& given = *static_cast<const LaunchedBody*>(body);
        MeshRank<Mesh> rank(core, given.mesh);
        constexpr bool takes_rank = std::is_invocable_v<F&, MeshRank<Mesh>&>;
        static_assert(takes_rank,
                      "run(mesh, f): f is called with the rank, which it takes by reference: [](auto& rank)");
        if constexpr (takes_rank) { given.function(rank); }
    }
};

}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// Reduces one number of each rank of `comm` and returns the result: see rank/all_reduce_value.hpp.
template <Element T>
T all_reduce_value(Rank& rank, const Communicator& comm, T value, ReduceOp op = ReduceOp::sum,
                   SourceLocation where = SourceLocation::current()) {
    rank.core().all_reduce(comm, op, element_type_of<T>, &value, where);
    return value;
}
template <Element T>
T all_reduce_value(Rank& rank, T value, ReduceOp op = ReduceOp::sum,
                   SourceLocation where = SourceLocation::current()) {
    return all_reduce_value(rank, rank.world(), value, op, where);
}
inline double exact_sum(Rank& rank, const Communicator& comm, std::span<const double> values,
                        SourceLocation where = SourceLocation::current()) {
    return rank.core().exact_sum(comm, values, where);
}
inline double exact_sum(Rank& rank, std::span<const double> values,
                        SourceLocation where = SourceLocation::current()) {
    return exact_sum(rank, rank.world(), values, where);
}

}  // namespace SHARDKIT_BUILD

namespace shardkit::threads SHARDKIT_BUILD {

/// Runs `f(rank)` on one thread per rank of `mesh`: see backend/threads/run.hpp. LaunchOptions are in
/// backend/threads/launch_options.hpp.
template <MeshType Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options = {}, SourceLocation where = SourceLocation::current()) {
    const shardkit::detail::LaunchedBody<Mesh, F> body{mesh, f};
    compiled::run_on_threads(mesh.grid(where), &body.call, &body, options, nullptr, where);
}
template <MeshType Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options, const LaunchOptions& launch_options,
         SourceLocation where = SourceLocation::current()) {
    const shardkit::detail::LaunchedBody<Mesh, F> body{mesh, f};
    compiled::run_on_threads(mesh.grid(where), &body.call, &body, options, &launch_options, where);
}

}  // namespace SHARDKIT_BUILD

namespace shardkit::self SHARDKIT_BUILD {

/// Calls `f(rank)` in this thread, with the only rank of `mesh`.
template <MeshType Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options = {}, SourceLocation where = SourceLocation::current()) {
    const shardkit::detail::LaunchedBody<Mesh, F> body{mesh, f};
    compiled::run_on_self(mesh.grid(where), &body.call, &body, options, where);
}

}  // namespace SHARDKIT_BUILD

namespace shardkit::mpi SHARDKIT_BUILD {

/// Runs `f(rank)` in this process as one rank of `mesh`: see backend/mpi/run.hpp. The program links
/// compiled_mpi.hpp's core. Options are in backend/mpi/options.hpp.
template <MeshType Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options = {}, SourceLocation where = SourceLocation::current()) {
    const shardkit::detail::LaunchedBody<Mesh, F> body{mesh, f};
    compiled::run_on_mpi(mesh.grid(where), &body.call, &body, options, nullptr, where);
}
template <MeshType Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions options, const Options& mpi_options,
         SourceLocation where = SourceLocation::current()) {
    const shardkit::detail::LaunchedBody<Mesh, F> body{mesh, f};
    compiled::run_on_mpi(mesh.grid(where), &body.call, &body, options, &mpi_options, where);
}

}  // namespace SHARDKIT_BUILD
