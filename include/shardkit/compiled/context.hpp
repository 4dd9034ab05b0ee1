// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/compiled/interface.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/device_mesh.hpp>

namespace shardkit::host {
struct Engine;
class HostStream;
}  // namespace shardkit::host

namespace shardkit {
using DefaultEngine = host::Engine;
namespace self {
using Engine = host::Engine;
}
namespace threads {
using Engine = host::Engine;
}
namespace mpi {
using Engine = host::Engine;
}
}  // namespace shardkit

namespace shardkit::detail SHARDKIT_BUILD {

/// The compiled core is of the engines of the host.
template <class EngineType>
struct CompiledEngine {
    static constexpr bool is_compiled = std::same_as<EngineType, host::Engine>;
    static_assert(is_compiled,
                  "SHARDKIT_COMPILED: the compiled core has the engines self, threads and mpi; a file that names "
                  "another engine is compiled without SHARDKIT_COMPILED");
};

}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// How long a rank waits for others while this object lives: see Context::deadline.
class [[nodiscard]] Deadline {
  public:
    Deadline(const compiled::Context& rank, std::int64_t milliseconds, SourceLocation where)
        : rank_(rank), before_(compiled::begin_deadline(rank, milliseconds, where)) {}
    Deadline(Deadline&&) = delete;
    ~Deadline() { compiled::end_deadline(rank_, before_); }

  private:
    const compiled::Context& rank_;
    std::int64_t before_;
};

/// One rank's view of a mesh, independent of the mesh's static type, as rank/context.hpp describes it. An engine's
/// `run` makes it.
template <class EngineType = DefaultEngine>
class Context {
    static_assert(detail::CompiledEngine<EngineType>::is_compiled);

  public:
    using Engine = EngineType;
    using Communicator = host::Communicator;

    explicit Context(compiled::Context& core) noexcept : core_(core) {}
    Context(Context&&) = delete;

    std::size_t rank() const noexcept { return compiled::rank_of(core_); }
    std::size_t world_size() const noexcept { return compiled::world_size_of(core_); }
    const AxisGrid& grid() const noexcept { return compiled::grid_of(core_); }
    const RankOptions& options() const noexcept { return compiled::options_of(core_); }

    /// Communicators and streams. Who uses them includes verbs.hpp.
    const host::Communicator& world() const noexcept { return compiled::world_of(core_); }
    template <class AxisSet, class Made = host::Communicator>
    Made sub_mesh(AxisSet axes = {}, SourceLocation where = SourceLocation::current()) {
        std::optional<Made> made;
        compiled::sub_mesh(
            core_, axes,
            [](void* to, const host::Communicator& from) { static_cast<std::optional<Made>*>(to)->emplace(from); },
            &made, where);
        return *std::move(made);
    }
    template <class S = host::HostStream>
    S compute_stream() const noexcept {
        return *static_cast<const S*>(compiled::stream_of(core_, 0));
    }
    template <class S = host::HostStream>
    S communication_stream() const noexcept {
        return *static_cast<const S*>(compiled::stream_of(core_, 1));
    }
    template <class S = host::HostStream>
    S reduction_stream() const noexcept {
        return *static_cast<const S*>(compiled::stream_of(core_, 2));
    }

    void synchronize() const { compiled::synchronize(core_); }
    void settle() const noexcept { compiled::settle(core_); }
    void set_step(std::uint32_t step) noexcept { compiled::set_step(core_, step); }
    /// `limit`: whole milliseconds, or a longer unit of std::chrono.
    template <class Duration>
    Deadline deadline(const Duration& limit, SourceLocation where = SourceLocation::current()) const {
        using Unit = typename Duration::period;
        static_assert(1000 * Unit::num % Unit::den == 0, "deadline: expected a number of milliseconds");
        return Deadline(core_, static_cast<std::int64_t>(limit.count()) * (1000 * Unit::num / Unit::den), where);
    }
    void compare_calls(SourceLocation where = SourceLocation::current()) const {
        compiled::compare_calls(core_, where);
    }
    void require_memory(const void* data, std::size_t bytes, std::string_view what, SourceLocation where) const {
        compiled::require_memory(core_, data, bytes, what, where);
    }
    compiled::Context& core() const noexcept { return core_; }

  private:
    compiled::Context& core_;
};

/// A type that arranges ranks: DeviceMesh, with static or dynamic extents.
template <class M>
concept MeshType = requires(const M mesh, SourceLocation where) {
    { mesh.grid(where) } -> std::convertible_to<AxisGrid>;
    { mesh.size() } -> std::convertible_to<std::size_t>;
};

/// What one rank of a job works with: its context, and the mesh with its static extents.
template <class EngineType, class MeshT>
class Rank : public Context<EngineType> {
  public:
    using Mesh = MeshT;

    Rank(compiled::Context& core, const Mesh& mesh) noexcept : Context<EngineType>(core), mesh_(mesh) {}
    const Mesh& mesh() const noexcept { return mesh_; }

  private:
    Mesh mesh_;
};
template <class RankOrContext>
using EngineOf = typename std::remove_cvref_t<RankOrContext>::Engine;

}  // namespace SHARDKIT_BUILD

namespace shardkit::detail SHARDKIT_BUILD {

/// Gives `run` a function of the user's without its type.
template <class Mesh, class F>
struct LaunchedBody {
    Mesh mesh;
    F& function;

    static void call(const void* body, compiled::Context& core) {
        const auto& given = *static_cast<const LaunchedBody*>(body);
        Rank<DefaultEngine, Mesh> rank(core, given.mesh);
        constexpr bool takes_rank = std::is_invocable_v<F&, Rank<DefaultEngine, Mesh>&>;
        static_assert(takes_rank,
                      "run(mesh, f): f is called with the rank, which it takes by reference: [](auto& rank)");
        if constexpr (takes_rank) { given.function(rank); }
    }
};

}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// Reduces one number of each rank of `comm` and returns the result: see rank/all_reduce_value.hpp.
template <class Engine, Element T>
T all_reduce_value(Context<Engine>& rank, const host::Communicator& comm, T value, ReduceOp op = ReduceOp::sum,
                   SourceLocation where = SourceLocation::current()) {
    compiled::all_reduce(rank.core(), comm, op, element_type_of<T>, &value, where);
    return value;
}
template <class Engine, Element T>
T all_reduce_value(Context<Engine>& rank, T value, ReduceOp op = ReduceOp::sum,
                   SourceLocation where = SourceLocation::current()) {
    return all_reduce_value(rank, rank.world(), value, op, where);
}
template <class Engine>
double exact_sum(Context<Engine>& rank, const host::Communicator& comm, std::span<const double> values,
                 SourceLocation where = SourceLocation::current()) {
    return compiled::exact_sum(rank.core(), comm, values, where);
}
template <class Engine>
double exact_sum(Context<Engine>& rank, std::span<const double> values,
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
