// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <shardkit/average/moving_average_members.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/factored/factored_works.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/muon/matrix_exchange.hpp>
#include <shardkit/muon/matrix_functions.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/norm_works.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/buffer_digests.hpp>
#include <shardkit/sharded/coded_parameters.hpp>

// Which kernels groups and an optimizer give to a device.

namespace shardkit::nccl::detail {

template <class... Kernel>
struct KernelList {
    template <template <class...> class To>
    using In = To<Kernel...>;
    template <class... More>
    constexpr KernelList<Kernel..., More...> operator+(KernelList<More...> /*more*/) const {
        return {};
    }
};
template <class... Work>
using OncePer = KernelList<engine::RunOnce<Work>...>;
template <class... Work>
using EachPer = KernelList<engine::ForEachIndex<Work>...>;

/// Those of groups with a Precision, whatever updates them.
template <class P>
constexpr auto group_kernels() {
    namespace of = shardkit::detail;
    using Gather = typename P::Gather;
    using Gradient = typename P::Gradient;
    using Sum = typename P::Reduction;
    using Master = typename P::Master;
    constexpr KernelList<engine::Fill<Gather>, engine::Fill<Gradient>, engine::Convert<typename P::Written, Master>,
                         engine::Convert<Gradient, Sum>, engine::Accumulate<Sum, Sum>,
                         engine::Accumulate<Gradient, Sum>, engine::NormPartial<Sum>, engine::Reduce<Gradient, Sum>,
                         engine::Reduce<Sum, Sum>, engine::Reduce<double, double>>
        elements;
    constexpr OncePer<of::BeginNorm, of::FinishNorm, of::KeepNonfinite, of::BeginInfinityNorm, of::FoldPartialNorms,
                      of::BeginStep, of::FoldDigests>
        once;
    constexpr EachPer<of::AddPartialNorms<Sum>, of::DigestElements<std::uint8_t>, of::DigestElements<std::uint16_t>,
                      of::DigestElements<std::uint32_t>, of::DigestElements<std::uint64_t>>
        each;
    constexpr auto all = elements + once + each;
    if constexpr (P::gathers_codes) {
        constexpr EachPer<of::BeginCodes<Gather, Master>, of::DecodeElement<Gather>> codes;
        if constexpr (of::codes_in_blocks<Gather>) {
            return all + codes;
        } else {
            return all + codes + EachPer<of::FoldLargest, of::MakeScale<Gather>, of::EncodePiece<Gather, Master>>{} +
                   OncePer<of::TakeLargest>{};
        }
    } else if constexpr (P::has_master) {
        constexpr auto masters = all + KernelList<engine::Convert<Gather, Master>, engine::Convert<Master, Gather>>{};
        if constexpr (of::can_split_master<P>) {
            return masters + EachPer<of::SplitWork<Gather>, of::JoinWork<Gather>>{};
        } else {
            return masters;
        }
    } else {
        return all;
    }
}

/// Those of the works that a rule of whole matrices says it launches.
template <class... Works>
constexpr auto work_kernels(std::type_identity<std::tuple<Works...>> /*works*/) {
    return KernelList<std::conditional_t<std::invocable<const Works&, std::uint64_t>, engine::ForEachIndex<Works>,
                                         engine::RunOnce<Works>>...>{};
}
/// Those of a rule's steps of groups with precision P that update elements of type `Updated`.
template <class Rule, class P, class Updated>
constexpr auto step_kernels() {
    namespace of = shardkit::detail;
    using A = Arithmetic<typename P::Master>;
    using Sum = typename P::Reduction;
    using Gather = typename P::Gather;
    if constexpr (rules::MatrixRule<Rule>) {
        using Update = typename Rule::template Update<A>;
        using Applied = of::AppliedRule<Rule>;
        constexpr KernelList<engine::RuleUpdates<Rule, of::UpdateTypes<A, A, Sum>>,
                             engine::RuleUpdates<Applied, of::UpdateTypes<Updated, Gather, A>>, engine::Convert<A, A>>
            updates;
        constexpr EachPer<of::BeginApply<Update, typename Applied::template Update<A>>, of::MovePiece<A, false>,
                          of::MovePiece<A, true>>
            moves;
        constexpr auto all = updates + moves;
        if constexpr (requires { typename Rule::template Works<A>; }) {
            return all + work_kernels(std::type_identity<typename Rule::template Works<A>>{});
        } else {
            return all;
        }
    } else if constexpr (rules::FactoredRule<Rule>) {
        constexpr auto settled = []<std::size_t... Pass>(std::index_sequence<Pass...>) {
            return OncePer<of::Settle<Rule, A, Pass>...>{};
        }
        (std::make_index_sequence<of::passes_of<Rule>>{});
        return settled + KernelList<engine::RuleUpdates<of::PassesOf<Rule>, of::UpdateTypes<Updated, Gather, Sum>>,
                                    engine::RuleUpdates<Rule, of::UpdateTypes<Updated, Gather, A>>>{};
    } else if constexpr (of::StorageOf<Rule>::type::format != StateFormat::full && !std::is_same_v<A, float>) {
        return KernelList<>{};  // refused
    } else {
        return KernelList<engine::RuleUpdates<Rule, of::UpdateTypes<Updated, Gather, Sum>>>{};
    }
}
/// Those of the beginning of a rule's steps.
template <class Rule>
constexpr auto begin_kernels() {
    namespace of = shardkit::detail;
    using Begin = of::BeginUpdatesAs<Rule>;
    return KernelList<engine::RunFirst<of::BeginStep, Begin>>{} + EachPer<Begin>{} + OncePer<of::SetOptions>{};
}

/// Those of the steps of groups with a Precision with an optimizer of Rule.
template <class P, class Rule>
constexpr auto rule_kernels() {
    using Master = typename P::Master;
    constexpr auto all = begin_kernels<Rule>() + step_kernels<Rule, P, Master>();
    if constexpr (shardkit::detail::can_drop_master<P>) {
        return all + step_kernels<Rule, P, typename P::Gather>();
    } else {
        return all;
    }
}
/// All that groups with a Precision give with an optimizer of Rule.
template <class P, class Rule>
constexpr auto training_kernels() {
    return group_kernels<P>() + rule_kernels<P, Rule>();
}
/// Those of a MovingAverage in groups of `Average` of a model of `Of`. It takes none of narrower elements than fp32.
template <class Average, class Of>
constexpr auto average_kernels() {
    using Master = typename Average::Master;
    if constexpr (sizeof(Master) < sizeof(float)) {
        return KernelList<>{};
    } else {
        namespace of = shardkit::detail;
        using Rule = of::MovingAverageRule;
        using Gather = typename Average::Gather;
        return KernelList<engine::RuleUpdates<Rule, of::UpdateTypes<Master, Gather, typename Of::Master>>,
                          engine::RuleUpdates<Rule, of::UpdateTypes<Master, Gather, typename Of::Written>>>{} +
               OncePer<of::SetMovingAverage>{};
    }
}

}  // namespace shardkit::nccl::detail
