// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/factored/factored_works.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/rank/launches.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/copy_captures.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/verbs/all_reduce.hpp>

namespace shardkit::detail {

/// The steps of a FactoredRule's groups that are updated in arithmetic A. They are its passes, each with one sum over
/// the world for all parameters, and behind them one update of each group.
/// Memory:  what is kept and the sums of all parameters, on every rank, and the directions of the largest group
template <class Rule, std::floating_point A>
class FactoredLaunches {
    using Part = HostPart<Rule, A>;
    static_assert(
        [] {
            for (std::size_t s = 0; s < Rule::sums.size(); ++s) {
                const std::size_t least = s == 0 ? 0 : Rule::sums[s - 1].pass;
                const std::size_t pass = Rule::sums[s].pass;
                if (Rule::sums[s].over == rules::Over::whole || pass < least || pass > (s == 0 ? 0 : least + 1)) {
                    return false;
                }
            }
            return true;
        }(),
        "FactoredRule: sums are over rows or columns, sorted by pass, and no pass is without one");

  public:
    void start() noexcept { listed_.clear(); }
    void list(const TrainedGroup& each) { listed_.push_back(each); }

    /// @throws std::invalid_argument for rows that took other numbers of steps than the rest
    void prepare(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) {
        for (const TrainedGroup& each : listed_) {
            const AnyUpdateWork of = work_at_rest(each, table.updates(), each.steps, skip);
            const bool launches = launch_of<PassesOf<Rule>>(of) != nullptr && of.along(nullptr).launches();
            require_launch(rank.compute_stream(), of, launches, each.state->path(), where);
        }
        parameters_.clear();
        std::size_t kept = 0;
        std::array<std::size_t, passes> sums{};
        std::size_t largest = 0;
        for (std::size_t g = 0; g < listed_.size(); ++g) {
            const GroupGeometry& group = listed_[g].state->geometry();
            if (listed_[g].group->uneven()) {
                throw_invalid_argument(where, "'", group.path,
                                       "': some rows of a parameter have taken other numbers of steps than the rest, "
                                       "for which a rule with sums over whole parameters has no step");
            }
            largest = std::max(largest, group.updated.size());
            for (std::size_t p = 0; p < group.parameters.size(); ++p) {
                if (!listed_[g].group->updates(p)) { continue; }
                Parameter& each = parameters_.emplace_back(
                    Parameter{g, p, rules::FactoredExtents(group.parameters[p].shape), kept, sums});
                kept += kept_of<Rule>(each.extents);
                for (std::size_t pass = 0; pass < passes; ++pass) { sums[pass] += sums_in<Rule>(pass, each.extents); }
            }
        }
        std::size_t all = 0;
        for (std::size_t pass = 0; pass < passes; ++pass) {
            first_[pass] = all;
            all += sums[pass];
        }
        first_[passes] = all;
        if (kept_.size() != kept) { kept_ = rank.local_buffer<A>(kept); }  // once, and never again
        if (sums_.size() != all) { sums_ = rank.buffer<double>(all); }
        if (directions_.size() != largest) { directions_ = rank.local_buffer<A>(largest); }
        subject_ = subject_of(rank.world(), concat("sums of ", std::string_view(Rule::name)));
    }

    /// One step of the groups that were listed. Order: stream-ordered; collective over the world.
    void run(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) {
        if (!any_that(listed_, [](const TrainedGroup& each) { return each.taken; })) { return; }
        const Stream stream = rank.compute_stream();
        for (const TrainedGroup& each : listed_) {
            if (each.taken) { each.state->gradients().wait(); }
        }
        const auto capture = stream.capture();
        run_passes<0>(rank, table, skip, where);
        for (std::size_t g = 0; g < listed_.size(); ++g) {
            if (!listed_[g].taken) { continue; }
            update(g, stream, table, skip);
            listed_[g].state->parameters().end_update(stream.record(), capture);
        }
    }

    /// Appends each state that is kept of a parameter of the group.
    void list_own_shapes(const GroupGeometry& group, std::size_t /*rank*/, List<HeldMemory>& held) const {
        for (const Parameter& each : parameters_) {
            if (&listed_[each.group].state->geometry() != &group) { continue; }
            std::size_t at = each.kept;
            for (const rules::KeptState& kept : Rule::kept) {
                const std::size_t count = rules::numbers_over(kept.over, each.extents);
                if (count == 0) { continue; }
                const bool renamed = each.extents.is_vector && !kept.of_vectors.empty();
                HeldMemory& state = held.emplace_back(HeldMemory{.role = Role::states});
                state.state = renamed ? kept.of_vectors : kept.name;
                state.values = kept_.span().subspan(at, count);
                const std::size_t rows = kept.over == rules::Over::whole ? 1 : each.extents.matrices;
                state.shape = {each.parameter, rows, count / rows, 0, 1, true, true};
                at += count;
            }
        }
    }
    /// The bytes of this rank's buffers.
    std::size_t bytes() const noexcept {
        return (kept_.size() + directions_.size()) * sizeof(A) + sums_.size() * sizeof(double);
    }

  private:
    static constexpr std::size_t passes = passes_of<Rule>;

    /// A parameter that is updated, on every rank; where its numbers begin.
    struct Parameter {
        std::size_t group;
        std::size_t parameter;
        rules::FactoredExtents extents;
        std::size_t kept;
        std::array<std::size_t, passes> sums;  // in each pass
    };

    Part part(const Parameter& each, const UpdateTable& table) {
        const TrainedGroup& in = listed_[each.group];
        const GroupGeometry& group = in.state->geometry();
        const PlacedParameter& parameter = group.parameters[each.parameter];
        Part of;
        of.numbers.extents = each.extents;
        std::size_t at = each.kept;
        for (std::size_t k = 0; k < Rule::kept.size(); ++k) {
            of.numbers.kept[k] = kept_.data() + at;
            at += rules::numbers_over(Rule::kept[k].over, each.extents);
        }
        std::array<std::size_t, passes> behind = each.sums;
        for (std::size_t s = 0; s < Rule::sums.size(); ++s) {
            const auto [pass, over] = Rule::sums[s];
            of.numbers.sums[s] = sums_.data() + first_[pass] + behind[pass];
            behind[pass] += rules::numbers_over(over, each.extents);
        }
        of.update = reinterpret_cast<const typename Part::Update*>(
            table.updates()[in.group->update_of(each.parameter)].bytes);
        of.part = parameter.part;
        const IndexRange held = intersect(parameter.range, group.updated);
        if (held.empty()) { return of; }
        of.elements = relative_to(held, parameter.range.begin);
        of.counts = group.replica(each.parameter, group.table.updated) == 0;
        const std::size_t first = held.begin - group.updated.begin;
        const AnyUpdateWork whole = work_in_step(in, nullptr, nullptr);
        const AnyUpdateWork its = whole.part(first, held.size());
        const HostConversions& to = *its.conversions;
        of.master = its.master;
        of.rest = its.rest;
        of.gradient = its.gradient;
        of.direction = directions_.data() + first;
        of.load = its.gathered != nullptr ? to.masters.load : to.stored.load;
        of.join = to.join;
        of.load_gradients = its.load_gradients;
        of.updated = its.updated;
        of.gradients = its.gradients;
        return of;
    }
    /// Gives the stream of a device a pass over a parameter, or that of the host `work`.
    template <class Work>
    void give(const Stream& stream, const Parameter& each, std::size_t pass, const Work& work) const {
        if (host_reads(stream)) { return stream.submit(work); }
        const AnyUpdateWork of = work_at_rest(listed_[each.group], nullptr, nullptr, nullptr);
        const FactoredPass<Rule, A> due{work.of, pass};
        launch_of<PassesOf<Rule>>(of)->run(stream, {.work = &of, .pass = &due});
    }
    template <std::size_t Pass>
    void run_passes(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) {
        if constexpr (Pass < passes) {
            const Stream compute = rank.compute_stream();
            const Stream reduction = rank.reduction_stream();
            const auto for_each_taken = [&](const auto& f) {
                for (const Parameter& each : parameters_) {
                    if (listed_[each.group].taken) { f(each, part(each, table)); }
                }
            };
            for_each_taken([&](const Parameter& each, const Part& of) {
                give(compute, each, Pass, AddTermsOnHost<Rule, A, Pass>{of});
            });
            reduction.wait(compute.record());
            all_reduce_span(rank.world(), TreelessOp(ReduceOp::sum),
                            sums_.span().subspan(first_[Pass], first_[Pass + 1] - first_[Pass]), reduction,
                            {where, subject_});
            compute.wait(reduction.record());
            for_each_taken([&](const Parameter& /*each*/, const Part& of) {
                host::AnyKernels::run_once(compute, Settle<Rule, A, Pass>{of.numbers, of.update, skip});
            });
            run_passes<Pass + 1>(rank, table, skip, where);
        }
    }
    void update(std::size_t g, const Stream& stream, const UpdateTable& table, const std::uint32_t* skip) {
        for (const Parameter& each : parameters_) {
            if (each.group != g) { continue; }
            const Part of = part(each, table);
            if (!of.elements.empty()) { give(stream, each, passes, WriteDirectionsOnHost<Rule, A>{of}); }
        }
        work_at_rest(listed_[g], table.updates(), listed_[g].steps, skip).along(directions_.data()).give(stream);
    }

    List<TrainedGroup> listed_;
    List<Parameter> parameters_;
    std::array<std::size_t, passes + 1> first_{};  // of each pass's sums
    HostBuffer<A> kept_;
    HostBuffer<double> sums_;
    HostBuffer<A> directions_;
    const engine::CallSubject* subject_ = nullptr;
};

}  // namespace shardkit::detail
