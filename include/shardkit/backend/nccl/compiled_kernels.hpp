// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__
#include <shardkit/backend/cub/launches.cuh>
#endif

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/backend/cub/kernel_launches.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/muon/matrix_exchange.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/norm_works.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/buffer_digests.hpp>
#include <shardkit/sharded/coded_parameters.hpp>
#include <shardkit/sharded/norm_sum.hpp>

// The kernels that the core gives to a device, as lists of what launches them.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

using gpu::KernelLaunches;
using gpu::LaunchLists;

/// Works that are run once where they have no index.
template <class... Works>
using WorkLaunches = KernelLaunches<std::conditional_t<std::invocable<const Works&, std::uint64_t>,
                                                       engine::ForEachIndex<Works>, engine::RunOnce<Works>>...>;
template <class Works>
struct WorksOf;
template <class... Works>
struct WorksOf<std::tuple<Works...>> {
    using Launches = WorkLaunches<Works...>;
};

/// Groups with a precision: their gathers, gradients, norms and masters.
template <class P>
struct GroupLaunches {
    using Gather = typename P::Gather;
    using Gradient = typename P::Gradient;
    using Reduction = typename P::Reduction;
    using Master = typename P::Master;
    using Sum = Arithmetic<Reduction>;
    using Kernels = KernelLaunches<engine::Fill<Gather>, engine::Fill<Gradient>,
                                   engine::Convert<typename P::Written, Master>, engine::Convert<Gradient, Sum>,
                                   engine::Convert<Sum, Reduction>, engine::Accumulate<Gradient, Reduction>,
                                   engine::Accumulate<Reduction, Reduction>, engine::AccumulatePair<Gradient, Sum>,
                                   engine::AccumulatePair<Reduction, Sum>, engine::NormPartial<Reduction>,
                                   engine::ForEachIndex<shardkit::detail::AddPartialNorms<Reduction>>>;
    static constexpr auto masters() {
        if constexpr (!P::has_master || P::gathers_codes) {
            return KernelLaunches<>{};
        } else if constexpr (!shardkit::detail::can_split_master<P>) {
            return KernelLaunches<engine::Convert<Gather, Master>, engine::Convert<Master, Gather>>{};
        } else {
            return KernelLaunches<engine::Convert<Gather, Master>, engine::Convert<Master, Gather>,
                                  engine::ForEachIndex<shardkit::detail::SplitWork<Gather>>,
                                  engine::ForEachIndex<shardkit::detail::JoinWork<Gather>>>{};
        }
    }
    static constexpr auto codes() {
        namespace of = shardkit::detail;
        if constexpr (!P::gathers_codes) {
            return KernelLaunches<>{};
        } else if constexpr (of::codes_in_blocks<Gather>) {
            return WorkLaunches<of::BeginCodes<Gather, Master>, of::DecodeElement<Gather>>{};
        } else {
            return WorkLaunches<of::BeginCodes<Gather, Master>, of::FoldLargest, of::TakeLargest,
                                of::MakeScale<Gather>, of::EncodePiece<Gather, Master>, of::DecodeElement<Gather>>{};
        }
    }
    using All = LaunchLists<Kernels, decltype(masters()), decltype(codes())>;
};

/// Updates of groups with a precision, with a rule of elements.
template <class Rule, class P>
struct RuleLaunches {
    template <class Updated>
    using Of =
        engine::RuleUpdates<Rule, shardkit::detail::UpdateTypes<Updated, typename P::Gather, typename P::Reduction>>;
    static constexpr auto list() {
        using Storage = typename shardkit::detail::StorageOf<Rule>::type;
        if constexpr (Storage::format != StateFormat::full &&
                      !std::is_same_v<Arithmetic<typename P::Master>, float>) {
            return KernelLaunches<>{};
        } else if constexpr (shardkit::detail::can_drop_master<P>) {
            return KernelLaunches<Of<typename P::Master>, Of<typename P::Gather>>{};
        } else {
            return KernelLaunches<Of<typename P::Master>>{};
        }
    }
    using All = decltype(list());
};
template <class Rule>
using BeginLaunches =
    KernelLaunches<engine::ForEachIndex<shardkit::detail::BeginUpdatesAs<Rule>>,
                   engine::RunFirst<shardkit::detail::BeginStep, shardkit::detail::BeginUpdatesAs<Rule>>>;
/// All rules of elements that the core has, with their states in a format.
template <template <class Rule> class Of, StateFormat format>
using OfRules =
    LaunchLists<Of<rules::RuleIn<rules::AdamWRule, format>>, Of<rules::RuleIn<rules::AmsgradRule, format>>,
                Of<rules::RuleIn<rules::SgdRule, format>>, Of<rules::RuleIn<rules::LionRule, format>>>;

/// Updates whose types are known, of groups with a precision: those of matrices, and of moving averages.
template <class P>
struct TypedLaunches {
    using A = Arithmetic<typename P::Master>;
    template <class Update, class Updated, class Gather, class Gradient, std::size_t N>
    using Of = engine::Update<Update, rules::UpdateSpans<Updated, Gather, Gradient, N>>;
    using Update = rules::MuonRule::Update<A>;
    using Apply = std::remove_cvref_t<decltype(std::declval<const Update&>().apply(rules::MatrixExtents{}))>;
    using Matrices = LaunchLists<
        KernelLaunches<
            Of<Update, A, A, typename P::Reduction, rules::MuonRule::state_names.size()>,
            Of<Apply, typename P::Master, typename P::Gather, A, 0>, engine::Convert<A, A>,
            engine::RunFirst<shardkit::detail::BeginStep, shardkit::detail::BeginUpdates<rules::MuonRule, A>>>,
        WorkLaunches<shardkit::detail::BeginApply<Update, Apply>, shardkit::detail::MovePiece<A, false>,
                     shardkit::detail::MovePiece<A, true>, shardkit::detail::BeginUpdates<rules::MuonRule, A>>,
        typename WorksOf<rules::MuonRule::Works<A>>::Launches>;
    /// Averages in such groups of groups with precision Q.
    template <class Q>
    using AverageOf = KernelLaunches<
        Of<rules::MovingAverageUpdate<A>, typename P::Master, typename P::Gather, typename Q::Master, 0>,
        Of<rules::MovingAverageUpdate<A>, typename P::Master, typename P::Gather, typename Q::Written, 0>>;
    template <class... Q>
    static constexpr auto averages(Precisions<Q...> /*all*/) {
        return LaunchLists<AverageOf<Q>...>{};
    }
    static constexpr auto without_masters() {
        using Gather = typename P::Gather;
        if constexpr (shardkit::detail::can_drop_master<P>) {
            return KernelLaunches<Of<Apply, Gather, Gather, A, 0>>{};
        } else {
            return KernelLaunches<>{};
        }
    }
    using All = LaunchLists<Matrices, decltype(averages(AllPrecisions{})), decltype(without_masters())>;
};

/// What a precision has no part in.
using StepLaunches =
    WorkLaunches<shardkit::detail::BeginNorm, shardkit::detail::FinishNorm, shardkit::detail::KeepNonfinite,
                 shardkit::detail::BeginInfinityNorm, shardkit::detail::FoldPartialNorms, shardkit::detail::BeginStep,
                 shardkit::detail::SetOptions<shardkit::detail::AnyOptions>,
                 shardkit::detail::SetOptions<MuonOptions>, shardkit::detail::SetMovingAverage,
                 shardkit::detail::FoldDigests, shardkit::detail::DigestElements<std::uint8_t>,
                 shardkit::detail::DigestElements<std::uint16_t>, shardkit::detail::DigestElements<std::uint32_t>,
                 shardkit::detail::DigestElements<std::uint64_t>>;

/// Sums over ranks, of the element types that verbs have.
using SumLaunches =
    KernelLaunches<engine::Reduce<double, double>, engine::Reduce<float, float>, engine::Reduce<bf16, bf16>,
                   engine::Reduce<fp16, fp16>, engine::Reduce<bf16, float>, engine::Reduce<fp16, float>>;

/// What begins steps of the rules with their states in some formats, and updates groups with these precisions.
template <class List, StateFormat... format>
struct UpdateLaunches;
template <class... P, StateFormat... format>
struct UpdateLaunches<Precisions<P...>, format...> {
    template <class Rule>
    using Of = LaunchLists<BeginLaunches<Rule>, typename RuleLaunches<Rule, P>::All...>;
    using All = LaunchLists<OfRules<Of, format>...>;
    using Calls = typename All::Calls;
    static Calls calls() { return All::calls(); }
};
/// All else that the core launches of groups with these precisions.
template <class List>
struct CoreLaunches;
template <class... P>
struct CoreLaunches<Precisions<P...>> {
    using All =
        LaunchLists<typename GroupLaunches<P>::All..., typename TypedLaunches<P>::All..., StepLaunches, SumLaunches>;
    using Calls = typename All::Calls;
    static Calls calls() { return All::calls(); }
};

}  // namespace SHARDKIT_CHECKED_BUILD
