// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/core/elements.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/param/initial_values.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/param/shapes.hpp>
#include <shardkit/policy/chosen_parameters.hpp>
#include <shardkit/policy/policy_rules.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/policy/shard_policy.hpp>
#include <shardkit/policy/sharded_options.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/sharded/group_values.hpp>
#include <shardkit/sharded/tensor_value_source.hpp>
#include <shardkit/sharded/window.hpp>
#ifndef SHARDKIT_COMPILED
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/sharded/fill_values.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/communicator.hpp>
#endif

namespace shardkit {

template <class AxisSet>
struct Partial;

namespace detail {
/// The axes over which the gradients of a group are summed, as far as its types say.
template <class Group>
using SummedAxes = std::conditional_t<has_experts<Group>, ExpertDataAxes, DataAxes>;
}  // namespace detail

/// The full values of parameter P with the line that gave them, for Sharded::from_full. Made by `full_values`.
template <ParamType P, FloatingElement T>
struct FullValues {
    std::span<const T> values;
    SourceLocation where;
};
/// Returns the full values of parameter P for Sharded::from_full, from an array, a vector or a span.
template <ParamType P, class Values>
auto full_values(const Values& values, SourceLocation where = SourceLocation::current()) {
    static_assert(detail::ValuesRules<const Values>::are_read);
    static_assert(detail::ValuesOfGroup<typename P::Element, const Values>::both_opaque);
    return FullValues<P, detail::ElementIn<const Values>>{detail::elements_of(values), where};
}

/// The user's own memory for Sharded::adopt: full flat buffers in the order of the layout.
template <class Gather, class Gradient>
struct AdoptedMemory {
    std::span<Gather> parameters;
    std::span<Gradient> gradients;  ///< empty: the library allocates its own
};

}  // namespace shardkit

namespace shardkit::detail SHARDKIT_BUILD {
#ifdef SHARDKIT_COMPILED
/// Makes a group of the precision that the core has with these values. `parameters`, `gradients`: the user's
/// own memory, or empty.
Group* make_group(Rank& rank, const PrecisionValues& elements, const GroupValues& values,
                  std::span<std::byte> parameters, std::span<std::byte> gradients, SourceLocation where);
template <class Precision>
constexpr const PrecisionValues& elements_for = precision_values<Precision>;
#else
template <class Precision>
constexpr const ElementTable& elements_for = element_table<Precision>;
#endif
}  // namespace SHARDKIT_BUILD
namespace shardkit SHARDKIT_CHECKED_BUILD {
class Model;
}
namespace shardkit SHARDKIT_FACE {
class Accumulation;
class Reduced;
}  // namespace SHARDKIT_FACE

namespace shardkit SHARDKIT_BUILD {

template <class Params, class Precision, class Placement>
class Gradients;

/// A group of parameters in flat buffers that a policy shards over the data-parallel ranks of a mesh.
///     Sharded<Linear, FullShard> layer{rank, "layers.0", {shape<Weight>(out, in), shape<Bias>(out)}};
///     Sharded<TensorList<float>, FullShard> block{rank, "blocks.0", {{"w", {out, in}}, {"b", {out}}}};
/// Construction is collective over the mesh: sub-communicators are made there and nowhere else, and the ranks compare
/// what they were given. Parameters start at zero; `initialize`, `load` or `from_full` give them values. A Sharded is
/// movable; its windows and gradient handles survive the move. Errors name the group's path. It must end before the
/// rank that it was made with, and after its windows and handles: otherwise the program ends with a line that names
/// them.
template <class ParamOrGroup, class PolicyType,
          class PrecisionType = DefaultPrecision<typename GroupOf<ParamOrGroup>::Element>>
class Sharded {
    static_assert(detail::has_members_of_policy<PolicyType>());
    static constexpr bool is_policy = ShardPolicy<PolicyType>;
    static_assert(is_policy, "Sharded<Param, Policy>: Policy must satisfy ShardPolicy; see policy/shard_policy.hpp");

  public:
    using Group = GroupOf<ParamOrGroup>;
    using Tensors = TensorsOf<Group>;  ///< Shapes<Group>, or the TensorList itself
    using Policy = PolicyType;
    using Precision = PrecisionType;
    using Options = ShardedOptions<Group, Policy>;
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Window = shardkit::Window<Group, Precision>;
    using PendingWindow = shardkit::PendingWindow<Group, Precision>;  ///< a gather that has begun
    /// What `gradients` of an Accumulation returns; see step/gradients.hpp. Those of types that are ep::Split are
    /// partial over ExpertDataAxes.
    using Gradients = shardkit::Gradients<Group, Precision, Partial<detail::SummedAxes<Group>>>;

    /// @throws std::invalid_argument when a shape is invalid, the policy's shard group does not divide dp, the path
    /// is
    ///         empty, or another rank gives another group; std::length_error when the group's bytes overflow;
    ///         MemoryError when there is no memory
    template <class Mesh>
    Sharded(MeshRank<Mesh>& rank, std::string path, Tensors tensors = {}, Options options = {},
            SourceLocation where = SourceLocation::current())
        : Sharded(static_cast<Rank&>(rank), std::move(path), std::move(tensors), std::move(options), where) {
        if constexpr (requires { Policy::static_group; } && Mesh::static_dp != dynamic) {
            static_assert(Mesh::static_dp % Policy::static_group == 0,
                          "Sharded: HybridShard<N> on this mesh: N does not divide DP");
        }
        if constexpr (detail::has_experts<Group> && requires { Policy::static_group + Mesh::static_ep; }) {
            static_assert(Mesh::static_dp == dynamic || Mesh::static_cp == dynamic || Mesh::static_ep == dynamic ||
                              Policy::static_group * Mesh::static_cp % Mesh::static_ep == 0,
                          "Sharded: HybridShard<N> of experts on this ExpertMesh: EP does not divide N x CP");
        }
    }
    Sharded(Rank& rank, std::string path, Tensors tensors = {}, Options options = {},
            SourceLocation where = SourceLocation::current())
        : Sharded(rank, path, tensors, options, {}, where) {}

    /// Rejects a policy in the place of the shapes, with an error that says what to write instead.
    template <ShardPolicy Given>
    Sharded(Rank& /*rank*/, const std::string& /*path*/, Given /*policy*/) {
        constexpr bool is_tensors = sizeof(Given) == 0;
        static_assert(is_tensors,
                      "Sharded{rank, path, policy}: the policy is an option, and shapes stand before options: write "
                      "Sharded{rank, path, {}, {policy}}");
    }

    /// Makes a Sharded from values that the user already holds in full; each rank keeps its shard. Takes one
    /// full_values<P>(span) for every parameter, in any order.
    /// @throws std::invalid_argument when a span's size is not the parameter's
    template <class... P, class... T>
    static Sharded from_full(Rank& rank, std::string path, Tensors tensors, Options options,
                             FullValues<P, T>... values) {
        static_assert(sizeof...(P) == Group::count,
                      "Sharded::from_full: one full_values<P>(...) for every parameter");
        Sharded made(rank, std::move(path), std::move(tensors), std::move(options));
        (made.load(P{}, values.values, values.where), ...);
        return made;
    }
    /// Makes a Sharded from one range of full values (a span, a vector) for each parameter, in the group's order.
    /// @throws std::invalid_argument when there are not as many ranges as parameters, or a range has another size
    /// than its parameter
    template <detail::ForwardRange Values>
    static Sharded from_full(Rank& rank, std::string path, Tensors tensors, Options options, const Values& values,
                             SourceLocation where = SourceLocation::current()) {
        Sharded made(rank, std::move(path), std::move(tensors), std::move(options), where);
        const auto given =
            static_cast<std::size_t>(std::ranges::distance(std::ranges::begin(values), std::ranges::end(values)));
        if (given != made.parameters().size()) {
            throw_invalid_argument(where, "'", made.path(), "': from_full with values of ", given,
                                   " parameters, expected ", made.parameters().size());
        }
        std::size_t number = 0;
        for (const auto& each : values) { made.load(number++, each, where); }
        return made;
    }

    /// Makes a Sharded that works on the user's own parameter and gradient memory in place, without a copy. Only
    /// policies that keep whole parameters on every rank allow it. The memory must outlive the Sharded. Master
    /// weights (of 16-bit parameters) are made from the parameters here; what the user writes into the parameters
    /// later does not reach them: use `load`. Where the optimizer is sharded, the next window after a step gathers
    /// the parameters of other ranks' shards.
    /// Shapes:  parameters (and gradients, unless empty) hold `buffer_numel` elements, one parameter behind the
    ///          other; where the policy shards, padding follows the last one. Gradients that are kept apart
    ///          (Gradients::sources) lie one behind the other.
    /// @pre     the same parameters on every rank
    /// @throws  std::invalid_argument when a span has another size, another group has adopted some of it, or the
    /// policy
    ///          shards parameters or keeps no full gradients that could be adopted; nothing is changed then
    static Sharded adopt(Rank& rank, std::string path, Tensors tensors, AdoptedMemory<Gather, Gradient> memory,
                         Options options = adopting(), SourceLocation where = SourceLocation::current()) {
        static_assert(
            !Precision::gathers_codes,
            "Sharded::adopt: gathered codes are made of masters, and their scales lie in the library's memory");
        if constexpr (rules::StaticPolicy<Policy>) {
            constexpr bool whole = Policy::parameters == Placement::replicated;
            static_assert(whole, "Sharded::adopt: only a policy that keeps whole parameters works in place");
        }
        check_adopted(rank, path, tensors, memory, options, where);
        rank.require_memory(memory.parameters.data(), memory.parameters.size_bytes(), "adopted parameters", where);
        rank.require_memory(memory.gradients.data(), memory.gradients.size_bytes(), "adopted gradients", where);
        return Sharded(rank, path, tensors, options, memory, where);
    }
    /// Returns the number of elements of such a group's full buffer, padding included: what to allocate for `adopt`.
    /// Cost:    arithmetic; no communication
    /// @throws  as the constructor
    static std::size_t buffer_numel(const Rank& rank, std::string_view path, const Tensors& tensors,
                                    const Options& options = adopting(),
                                    SourceLocation where = SourceLocation::current()) {
        return describe_group<Group, Policy, Precision>(path, tensors, rank.grid(), options, where).buffer_numel;
    }
    /// Returns the options with the layout of adopted memory: no padding between parameters, and behind the last one
    /// only where the policy shards.
    static Options adopting() {
        if constexpr (rules::StaticPolicy<Policy>) {
            return {.packing = Policy::optimizer == Placement::replicated ? Packing::exact : Packing::packed};
        } else {
            return {.packing = Packing::exact};
        }
    }

    /// Returns a window of the full parameters. Gathers if the full copy is stale, and is then collective over the
    /// shard group. Stream-ordered.
    /// Cost:    (n - 1) / n of the group's gathered bytes received where it gathers; else nothing.
    /// @throws  UsageError when no gather buffer is free; CommError when the engine fails
    [[nodiscard]] Window unshard(SourceLocation where = SourceLocation::current()) {
        return begin_unshard(where).wait();
    }

    /// Returns a window in work that not all ranks do: with Gathers::never it is local, whatever the policy.
    /// @throws  UsageError when it would have to gather; see summon_full_params
    [[nodiscard]] Window unshard(Gathers gathers, SourceLocation where = SourceLocation::current()) {
        detail::open_window(live(where), gathers, where);
        return PendingWindow(*group_, where).wait();
    }

    /// Starts the gather, with the cost and errors of unshard; `std::move(pending).wait()` returns the window.
    [[nodiscard]] PendingWindow begin_unshard(SourceLocation where = SourceLocation::current()) {
        detail::open_window(live(where), Gathers::when_stale, where);
        return PendingWindow(*group_, where);
    }

    /// Ends a window; full parameters are released where the policy says so. Local work.
    /// @throws UsageError when the window is another group's or already ended
    void reshard(Window&& window, SourceLocation where = SourceLocation::current()) {
        if (!window.belongs_to(live(where))) {
            detail::refuse_group(*group_, where,
                                 window.open() ? "reshard of a window that belongs to another group"
                                               : "reshard of a window that has already ended");
        }
        const Window ends_here(std::move(window));
    }

    template <class Given>
    void reshard(Given& /*window*/, SourceLocation /*where*/ = SourceLocation::current()) {
        constexpr bool consumed = sizeof(Given) == 0;
        static_assert(consumed, "reshard consumes the window: write reshard(std::move(window))");
    }

    /// Sets every element from value(path, parameter name, index in the whole parameter) -> floating point, which the
    /// host calls; or from value(path, parameter name)(index), which the engine's kernels call: InitialValues, or a
    /// trivially copyable functor of the user's. The values are the same for every world size and policy.
    /// Order:   local work on the elements that this rank holds, in the compute stream's order
    /// @throws  UsageError when a window is open
    template <class F>
    void initialize(F value, SourceLocation where = SourceLocation::current()) {
        static_assert(!detail::is_opaque<Gather>,
                      "Sharded: opaque bytes are not initialized from numbers; load them, or a checkpoint");
#ifndef SHARDKIT_COMPILED
        if constexpr (detail::GivesFunctions<F>) {
            detail::fill_values<Precision>(live(where), value, where);
        } else
#endif
        {
            detail::initialize_values(live(where), value, where);
        }
    }

    /// Sets one parameter, given by type, name or number, from its full values, which must be the same on every rank;
    /// each rank keeps its shard. Local work. `values` is an array, a vector or a span of floating elements.
    /// @throws std::invalid_argument when the size is not the parameter's, or the group has no such parameter;
    /// UsageError
    ///         when a window is open
    template <class P, class Values>
    void load(const P& parameter, const Values& values, SourceLocation where = SourceLocation::current()) {
        if constexpr (detail::ValuesRules<const Values>::are_read) {
            static_assert(detail::ValuesOfGroup<Gather, const Values>::both_opaque);
            ref(where).load(number_of(parameter, where), values, where);
        }
    }

    /// Copies one whole parameter, given by type, name or number, into `values` on every rank; the host waits.
    /// Collective as unshard, and over tp where the parameter is split over it.
    /// @throws std::invalid_argument when the size is not the parameter's, or the group has no such parameter
    template <class P, class Values>
    void read_full(const P& parameter, Values&& values, SourceLocation where = SourceLocation::current()) {
        if constexpr (detail::TargetRules<Values>::are_written) {
            static_assert(detail::ValuesOfGroup<Gather, Values>::both_opaque);
            detail::read_full(live(where), number_of(parameter, where), true,
                              detail::TensorValueTarget::of(detail::elements_of(values)), where);
        }
    }
    /// Copies one whole parameter on world rank `root` alone; the others pass an empty span. Collective as unshard.
    template <class P, class Values>
    void read_full_on(std::size_t root, const P& parameter, Values&& values,
                      SourceLocation where = SourceLocation::current()) {
        static_assert(detail::TargetRules<Values>::are_written);
        static_assert(detail::ValuesOfGroup<Gather, Values>::both_opaque);
        if (root >= rank(where).world_size()) {
            throw_invalid_argument(where, "'", path(), "': read_full_on root ", root, ", expected a rank below ",
                                   rank_->world_size());
        }
        detail::read_full(*group_, number_of(parameter, where), rank_->rank() == root,
                          detail::TensorValueTarget::of(detail::elements_of(values)), where);
    }

    /// Returns the elements that this rank holds of each parameter and of its master weights.
    std::vector<ShardInfo> shards(SourceLocation where = SourceLocation::current()) const {
        return ref(where).shards();
    }

    const std::string& path(SourceLocation where = SourceLocation::current()) const { return ref(where).path(); }
    /// Returns the sizes of the flat buffer and of its shards.
    const layout::FlatLayout& layout(SourceLocation where = SourceLocation::current()) const {
        return ref(where).layout();
    }
    /// Returns the name, shape, attributes and place of each parameter, in order.
    std::span<const PlacedParameter> parameters(SourceLocation where = SourceLocation::current()) const {
        return ref(where).parameters();
    }
    /// Calls f(place, number) for each parameter, in order, as named_parameters() of PyTorch. `place` is its
    /// PlacedParameter; window.view(number), load(number, ...) and the like take `number`.
    template <class F>
    void for_each_parameter(F&& f, SourceLocation where = SourceLocation::current()) const {
        std::size_t number = 0;
        for (const PlacedParameter& parameter : parameters(where)) { f(parameter, number++); }
    }
    /// Returns the number of a parameter, given by type, name or number.
    /// @throws std::invalid_argument when the group has none of that name or number
    template <class P>
    std::size_t number_of(const P& parameter, SourceLocation where = SourceLocation::current()) const {
        return detail::number_in<Group>(live(where), parameter, where);
    }
    const Policy& policy(SourceLocation where = SourceLocation::current()) const {
        static_cast<void>(live(where));
        return policy_;
    }
    bool trainable(SourceLocation where = SourceLocation::current()) const { return ref(where).trainable(); }
    Rank& rank(SourceLocation where = SourceLocation::current()) const {
        static_cast<void>(live(where));
        return *rank_;
    }
    /// Returns the group without its types.
    GroupRef ref(SourceLocation where = SourceLocation::current()) const { return GroupRef(live(where)); }

  private:
    friend Model;
    friend Accumulation;
    /// @throws what make_group and the check of a TensorList throw
    Sharded(Rank& rank, std::string_view path, const Tensors& tensors, const Options& options,
            AdoptedMemory<Gather, Gradient> memory, SourceLocation where)
        : rank_(&rank), policy_(options.policy) {
        static_assert(rules::PolicyRules<Policy>::hold);
        const auto parameters = detail::chosen_parameters<Group, Policy>(path, tensors, options, where);
        group_ = decltype(group_)(detail::make_group(
            rank, detail::elements_for<Precision>,
            {path, parameters, Group::extents, Group::all_names,
             rules::policy_values(options.policy, rank.grid().extent(Dp::name), where), options.packing,
             options.master, options.stochastic_rounding, options.gradient_release, options.offload},
            std::as_writable_bytes(memory.parameters), std::as_writable_bytes(memory.gradients), where));
    }

    /// Returns the group behind this object. @throws UsageError when it was moved from
    detail::Group& live(SourceLocation where) const {
        if (!group_) [[unlikely]] { detail::refuse_use(where, "a Sharded was used after it was moved from"); }
        return *group_;
    }

    static void check_adopted(const Rank& rank, const std::string& path, const Tensors& tensors,
                              const AdoptedMemory<Gather, Gradient>& memory, const Options& options,
                              SourceLocation where) {
        const rules::PolicyValues policy = rules::policy_values(options.policy, rank.grid().extent(Dp::name), where);
        if (policy.parameters != Placement::replicated) {
            throw_invalid_argument(where, "'", path, "': adopt with policy ", policy.name,
                                   ", expected one that keeps whole parameters: no other works in place");
        }
        if (policy.accumulate == Accumulate::reduced && !memory.gradients.empty()) {
            throw_invalid_argument(where, "'", path, "': adopted gradients with policy ", policy.name,
                                   ", expected none: it reduces every microbatch out of a buffer that groups take "
                                   "turns in");
        }
        if (options.gradient_release == GradientRelease::at_update && !memory.gradients.empty()) {
            throw_invalid_argument(where, "'", path,
                                   "': adopted gradients with GradientRelease::at_update, expected none: "
                                   "they are released into buffers that groups take turns in");
        }
        const auto group = describe_group<Group, Policy, Precision>(path, tensors, rank.grid(), options, where);
        const auto check = [&](std::string_view what, std::size_t given, std::size_t expected) {
            if (given == expected) { return; }
            throw_invalid_argument(where, "'", path, "': adopted ", what, " hold ", given, " elements, expected ",
                                   expected);
        };
        check("parameters", memory.parameters.size(), group.buffer_numel);
        if (memory.gradients.empty()) { return; }
        check("gradients", memory.gradients.size(), group.sources() * group.buffer_numel);
    }

    Rank* rank_;
    Policy policy_;
    detail::Owned<detail::Group, detail::end_group> group_;  // at one address, which windows and handles have
};

}  // namespace SHARDKIT_BUILD
