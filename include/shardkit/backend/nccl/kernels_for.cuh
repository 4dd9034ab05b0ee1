// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

#include <shardkit/backend/cub/kernels.cuh>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/backend/cub/combine.hpp>
#include <shardkit/backend/cub/launches.cuh>
#include <shardkit/backend/nccl/kernels_of.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/factored/factored_works.hpp>
#include <shardkit/muon/matrix_exchange.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/state_storage.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/buffer_digests.hpp>
#include <shardkit/sharded/coded_parameters.hpp>
#include <shardkit/sharded/norm_sum.hpp>

namespace shardkit::nccl {

namespace detail {

/// Lists the launches of a rule's update for elements of type `Updated`, in groups with precision P, by values of
/// type `Gradient`, with every number of states that it takes.
template <class Rule, class P, class Updated, class Gradient, std::size_t StateCount = 0, class... Passes>
constexpr auto update_launches() {
    using Update = typename Rule::template Update<Arithmetic<typename P::Master>>;
    using Pass = typename gpu::detail::UpdatePassOf<Update, Updated, typename P::Gather, Gradient, StateCount,
                                                    typename shardkit::detail::StorageOf<Rule>::type>::type;
    if constexpr (StateCount > Rule::state_names.size()) {
        return std::type_identity<gpu::detail::DirectLaunches<Passes...>>{};
    } else if constexpr (rules::UpdateOf<Update, Arithmetic<typename P::Master>, StateCount>) {
        return update_launches<Rule, P, Updated, Gradient, StateCount + 1, Passes..., Pass,
                               gpu::detail::BatchPass<Pass>>();
    } else {
        return update_launches<Rule, P, Updated, Gradient, StateCount + 1, Passes...>();
    }
}
/// Lists the launches of a work that the core gives to Kernels::for_each_index, or to run_once where it has no index.
template <class... Works>
constexpr auto work_launches(std::type_identity<std::tuple<Works...>> /*works*/) {
    return std::type_identity<gpu::detail::DirectLaunches<
        std::conditional_t<std::invocable<const Works&, std::uint64_t>, Works, gpu::detail::RunOnce<Works>>...>>{};
}
/// The works that a rule of whole matrices says it launches.
template <class Rule, class A>
struct WorksOf {
    using type = std::tuple<>;
};
template <class Rule, class A>
requires(sizeof(std::type_identity<typename Rule::template Works<A>>) > 0) struct WorksOf<Rule, A> {
    using type = typename Rule::template Works<A>;
};
/// Lists the launches of a rule of whole matrices, of a precision whose groups update elements of type `Updated`: the
/// directions, their way to the matrix and back, what becomes of it, and how elements are moved along it.
template <class Rule, class P, class Updated, std::size_t StateCount>
constexpr auto matrix_launches() {
    namespace of = shardkit::detail;
    using A = Arithmetic<typename P::Master>;
    using Update = typename Rule::template Update<A>;
    using Apply = std::remove_cvref_t<decltype(std::declval<const Update&>().apply(rules::MatrixExtents{}))>;
    using Directions = gpu::detail::UpdatePass<Update, A, A, typename P::Reduction, StateCount>;
    using Moves = typename gpu::detail::UpdatePassOf<Apply, Updated, typename P::Gather, A, std::size_t{0},
                                                     of::FullStates>::type;
    return std::type_identity<
        gpu::detail::DirectLaunches<Directions, of::BeginApply<Update, Apply>, of::MovePiece<A, false>,
                                    of::MovePiece<A, true>, Moves, gpu::detail::ConvertPass<A, A>>>{};
}
/// Lists the launches of a rule with sums over whole parameters: those of each pass, the directions, and the updates.
template <class Rule, class P, class Updated, std::size_t... Pass>
constexpr auto factored_launches(std::index_sequence<Pass...> /*passes*/) {
    namespace of = shardkit::detail;
    using A = Arithmetic<typename P::Master>;
    using Part = of::FactoredPart<Rule, A, Updated, typename P::Reduction>;
    return update_launches<Rule, P, Updated, A, 0, of::AddTerms<Part, Rule, Pass>...,
                           gpu::detail::RunOnce<of::Settle<Part, Pass>>..., of::WriteDirections<Part>>();
}
/// Lists the launches of any rule's updates.
template <class Rule, class P, class Updated>
constexpr auto rule_launches() {
    if constexpr (rules::MatrixRule<Rule>) {
        return matrix_launches<Rule, P, Updated, Rule::state_names.size()>();
    } else if constexpr (rules::FactoredRule<Rule>) {
        return factored_launches<Rule, P, Updated>(std::make_index_sequence<shardkit::detail::passes_of<Rule>>{});
    } else {
        return update_launches<Rule, P, Updated, typename P::Reduction>();
    }
}
/// The other type that groups with precision P may update: the gathered type if they can do without master weights,
/// otherwise the master type.
template <class P>
using UpdatedWithout =
    std::conditional_t<shardkit::detail::can_drop_master<P>, typename P::Gather, typename P::Master>;

/// Makes the kernels that add and compare the ranks' elements of type In, into elements of type Out, when it is
/// explicitly instantiated in a file of nvcc.
template <class In, class Out>
struct CombinedFor {
    using Of = gpu::detail::DirectLaunches<gpu::detail::AddedInOrder<In, Out>, gpu::detail::AddedAlongTree<In, Out>,
                                           gpu::detail::AddedByEights<In, Out>, gpu::detail::Extremes<In, Out>>;
    using Calls = typename Of::Calls;
    static Calls calls() { return Of::calls(); }
    static void preload(SourceLocation where) { Of::preload(where); }
};

/// Lists the launches that make codes of masters, for groups with precision P that gather codes, and decode them.
template <class P>
constexpr auto code_launches() {
    using Gather = typename P::Gather;
    using Master = typename P::Master;
    namespace of = shardkit::detail;
    if constexpr (!P::gathers_codes) {
        return std::type_identity<gpu::detail::DirectLaunches<>>{};
    } else if constexpr (of::codes_in_blocks<Gather>) {
        return std::type_identity<
            gpu::detail::DirectLaunches<of::BeginCodes<Gather, Master>, of::DecodeElement<Gather>>>{};
    } else {
        return std::type_identity<gpu::detail::DirectLaunches<
            of::BeginCodes<Gather, Master>, of::FoldLargest, gpu::detail::RunOnce<of::TakeLargest>,
            of::MakeScale<Gather>, of::EncodePiece<Gather, Master>, of::DecodeElement<Gather>>>{};
    }
}

/// Lists the launches that make the masters of frozen parameters those of their elements, and those that save and
/// load split masters.
template <class P>
constexpr auto frozen_launches() {
    using Gather = typename P::Gather;
    using Master = typename P::Master;
    if constexpr (!P::has_master || P::gathers_codes) {
        return std::type_identity<gpu::detail::DirectLaunches<>>{};
    } else if constexpr (!shardkit::detail::can_split_master<P>) {
        return std::type_identity<gpu::detail::DirectLaunches<gpu::detail::ConvertPass<Gather, Master>>>{};
    } else {
        return std::type_identity<gpu::detail::DirectLaunches<
            gpu::detail::ConvertPass<Gather, Master>, gpu::detail::ConvertPass<Master, Gather>,
            shardkit::detail::SplitWork<Gather>, shardkit::detail::JoinWork<Gather>>>{};
    }
}

/// Makes the kernel of norms of elements of type T.
template <class T>
struct NormFor {
    using Calls = void (*)(const gpu::TimelineRef&, std::span<const engine::NormPiece<T>>, IndexRange, const double*,
                           double*);
    static Calls calls() { return &gpu::detail::norm_partial<T>; }
    static void preload(SourceLocation where) {
        gpu::detail::load_kernel(&gpu::detail::norm_kernel<gpu::detail::NormPass<T>>, where);
    }
};

/// Makes several sets of kernels.
template <class... Sets>
struct KernelSets {
    using Calls = std::tuple<typename Sets::Calls...>;
    static Calls calls() { return Calls(Sets::calls()...); }
    static void preload(SourceLocation where) { (Sets::preload(where), ...); }
};

}  // namespace detail

/// Makes all kernels that groups with a Precision launch with an optimizer of Rule on an NCCL engine, when it is
/// explicitly instantiated in a file of nvcc: the kernels of stores, norms and clipping, steps, and the engine's
/// reductions. A Muon needs those of both its parts: rules::MuonRule and rules::AdamWRule.
///     template struct shardkit::nccl::KernelsFor<shardkit::DefaultPrecision<float>, shardkit::rules::AdamWRule>;
template <class Precision, class Rule>
struct KernelsFor {
    using Gather = typename Precision::Gather;
    using Gradient = typename Precision::Gradient;
    using Reduction = typename Precision::Reduction;
    using Master = typename Precision::Master;
    using OfGroups = gpu::detail::DirectLaunches<gpu::detail::FillPass<Gather>, gpu::detail::FillPass<Gradient>,
                                                 gpu::detail::ConvertPass<typename Precision::Written, Master>,
                                                 gpu::detail::AccumulatePass<Reduction, Reduction>,
                                                 gpu::detail::AccumulatePass<Gradient, Reduction>,
                                                 gpu::detail::AccumulatePairPass<Reduction, Arithmetic<Reduction>>,
                                                 gpu::detail::AccumulatePairPass<Gradient, Arithmetic<Reduction>>>;
    using OfSteps = gpu::detail::DirectLaunches<
        gpu::detail::RunOnce<shardkit::detail::BeginNorm>, gpu::detail::RunOnce<shardkit::detail::FinishNorm>,
        gpu::detail::RunOnce<shardkit::detail::KeepNonfinite>,
        gpu::detail::RunOnce<shardkit::detail::BeginInfinityNorm>,
        gpu::detail::RunOnce<shardkit::detail::FoldPartialNorms>, shardkit::detail::AddPartialNorms<Reduction>,
        gpu::detail::RunOnce<shardkit::detail::BeginStep>, gpu::detail::RunOnce<shardkit::detail::FoldDigests>,
        shardkit::detail::DigestElements<std::uint8_t>, shardkit::detail::DigestElements<std::uint16_t>,
        shardkit::detail::DigestElements<std::uint32_t>, shardkit::detail::DigestElements<std::uint64_t>,
        gpu::detail::RunOnce<shardkit::detail::SetOptions<typename Rule::Options>>,
        shardkit::detail::BeginUpdates<Rule, Arithmetic<Master>>>;
    using BeginsSteps = gpu::detail::LaunchBehind<shardkit::detail::BeginStep,
                                                  shardkit::detail::BeginUpdates<Rule, Arithmetic<Master>>>;
    using OfUpdates = typename decltype(detail::rule_launches<Rule, Precision, Master>())::type;
    using OfStoredUpdates =
        typename decltype(detail::rule_launches<Rule, Precision, detail::UpdatedWithout<Precision>>())::type;
    using OfMatrices = typename decltype(detail::work_launches(
        std::type_identity<typename detail::WorksOf<Rule, Arithmetic<Master>>::type>{}))::type;
    using OfReductions = gpu::detail::DirectLaunches<gpu::detail::ConvertPass<Gradient, Arithmetic<Reduction>>,
                                                     gpu::detail::ConvertRowsPass<Gradient, Arithmetic<Reduction>>,
                                                     gpu::detail::ConvertPass<Arithmetic<Reduction>, Reduction>>;
    using OfGradients = detail::CombinedFor<Gradient, Reduction>;
    using OfReduced = detail::CombinedFor<Reduction, Reduction>;
    using OfValues = detail::CombinedFor<double, double>;
    using OfCodes = typename decltype(detail::code_launches<Precision>())::type;
    using OfFrozen = typename decltype(detail::frozen_launches<Precision>())::type;

    using All =
        detail::KernelSets<OfGroups, OfSteps, BeginsSteps, OfUpdates, OfStoredUpdates, OfMatrices, OfReductions,
                           OfGradients, OfReduced, OfValues, OfCodes, OfFrozen, detail::NormFor<Reduction>>;
    using Lists = typename decltype(detail::training_kernels<Precision, Rule>())::template In<gpu::KernelLaunches>;
    static void calls() {
        static_cast<void>(All::calls());
        static_cast<void>(Lists::calls());
    }
    /// Loads all of them on the selected device (see gpu::KernelLaunches).
    /// @throws gpu::Error
    template <class Where = SourceLocation>
    static void preload(Where where = Where::current()) {
        All::preload(where);
        Lists::preload(where);
    }
};

/// Makes, likewise, the kernels of a MovingAverage in groups of `Average` of a model of `Of`.
///     template struct shardkit::nccl::AverageKernelsFor<shardkit::DefaultPrecision<float>>;
template <class Average, class Of = Average>
struct AverageKernelsFor {
    using Gather = typename Average::Gather;
    /// What the groups update: masters, and what is gathered where there are none.
    using Master = typename Average::Master;
    using Stored = std::conditional_t<sizeof(Gather) < sizeof(float), Master, Gather>;
    template <class Updated, class Value>
    using Pass = typename gpu::detail::UpdatePassOf<rules::MovingAverageUpdate<Arithmetic<Updated>>, Updated, Gather,
                                                    Value, std::size_t{0}, shardkit::detail::FullStates>::type;
    using OfUpdates =
        gpu::detail::DirectLaunches<gpu::detail::RunOnce<shardkit::detail::SetMovingAverage>,
                                    Pass<Master, typename Of::Master>, Pass<Master, typename Of::Written>,
                                    Pass<Stored, typename Of::Master>, Pass<Stored, typename Of::Written>>;

    using Lists = typename decltype(detail::average_kernels<Average, Of>())::template In<gpu::KernelLaunches>;
    static void calls() {
        static_cast<void>(OfUpdates::calls());
        static_cast<void>(Lists::calls());
    }
    template <class Where = SourceLocation>
    static void preload(Where where = Where::current()) {
        OfUpdates::preload(where);
        Lists::preload(where);
    }
};

}  // namespace shardkit::nccl

#include <shardkit/detail/show_macros.inc>
