// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>

#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/factored/factored_functions.hpp>
#include <shardkit/factored/factored_works.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/spi/placement.hpp>
#include <shardkit/spi/update_runner.hpp>
#include <shardkit/spi/updates.hpp>
#include <shardkit/verbs/all_reduce.hpp>

namespace shardkit::detail {

/// The steps of a FactoredRule's groups that are updated in arithmetic A. They are its passes, each with one sum over
/// the world for all parameters, and behind them one update of each group.
/// Memory:  what is kept and the sums of all parameters, on every rank, and the directions of the largest group
template <std::floating_point A>
class FactoredLaunches final : public spi::UpdateRunner {
  public:
    explicit FactoredLaunches(const AnyFactoredRule* rule)
        : rule_(std::get<FactoredFunctions<A>>(*rule)),
          passes_(rule_.sums.empty() ? 0 : rule_.sums.back().pass + 1) {}

    /// @throws std::invalid_argument for rows that took other numbers of steps than the rest
    void prepare(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) override {
        require_groups(rank, table, skip, "a rule with sums over whole parameters", where,
                       [&](const AnyUpdateWork& of) { return rule_.launches(of) && of.along(nullptr).launches(); });
        parameters_.clear();
        std::size_t kept = 0;
        std::size_t largest = 0;
        for (std::size_t g = 0; g < listed_.size(); ++g) {
            const GroupGeometry& group = listed_[g].state->geometry();
            largest = std::max(largest, group.updated.size());
            for (std::size_t p = 0; p < group.parameters.size(); ++p) {
                if (!listed_[g].group->updates(p)) { continue; }
                Parameter& each =
                    parameters_.emplace_back(Parameter{g, p, rules::FactoredExtents(group.parameters[p].shape)});
                for (std::size_t k = 0; k < rule_.kept.size(); ++k) {
                    each.kept[k] = std::exchange(kept, kept + rules::numbers_over(rule_.kept[k].over, each.extents));
                }
            }
        }
        std::size_t all = 0;
        for (std::size_t i = 0; i < rule_.sums.size(); ++i) {  // sorted by pass
            const auto [pass, over] = rule_.sums[i];
            for (Parameter& each : parameters_) {
                each.sums[i] = std::exchange(all, all + rules::numbers_over(over, each.extents));
            }
            first_[pass + 1] = all;
        }
        if (kept_.size() != kept) { kept_ = rank.local_buffer<A>(kept); }  // once, and never again
        if (sums_.size() != all) { sums_ = rank.buffer<double>(all); }
        if (directions_.size() != largest) { directions_ = rank.local_buffer<A>(largest); }
        subject_ = subject_of(rank.world(), concat("sums of ", rule_.name));
    }

    /// One step of the groups that were listed. Order: stream-ordered; collective over the world.
    void run(Rank& rank, const UpdateTable& table, const std::uint32_t* skip, SourceLocation where) override {
        if (!any_that(listed_, [](const TrainedGroup& each) { return each.taken; })) { return; }
        const Stream stream = rank.compute_stream();
        wait_for_gradients();
        const auto capture = stream.capture();
        for (std::size_t pass = 0; pass < passes_; ++pass) { run_pass(pass, rank, table, skip, where); }
        for (std::size_t g = 0; g < listed_.size(); ++g) {
            if (!listed_[g].taken) { continue; }
            update(g, stream, table, skip);
            listed_[g].state->parameters().end_update(stream.record(), capture);
        }
    }

    /// Appends each state that is kept of a parameter of the group.
    void list_own_shapes(const GroupGeometry& group, std::size_t /*rank*/, List<HeldMemory>& held) const override {
        for (const Parameter& each : parameters_) {
            if (&listed_[each.group].state->geometry() != &group) { continue; }
            for (std::size_t k = 0; k < rule_.kept.size(); ++k) {
                const rules::KeptState& kept = rule_.kept[k];
                const std::size_t count = rules::numbers_over(kept.over, each.extents);
                if (count == 0) { continue; }
                const bool renamed = each.extents.is_vector && !kept.of_vectors.empty();
                HeldMemory& state = held.emplace_back(HeldMemory{.role = Role::states});
                state.state = renamed ? kept.of_vectors : kept.name;
                state.values = kept_.span().subspan(each.kept[k], count);
                const std::size_t rows = kept.over == rules::Over::whole ? 1 : each.extents.matrices;
                state.shape = {each.parameter, rows, count / rows, 0, 1, true, true};
            }
        }
    }
    /// The bytes of this rank's buffers.
    std::size_t bytes() const noexcept override {
        return (kept_.size() + directions_.size()) * sizeof(A) + sums_.size() * sizeof(double);
    }

  private:
    /// A parameter that is updated, on every rank; where its numbers begin.
    struct Parameter {
        std::size_t group;
        std::size_t parameter;
        rules::FactoredExtents extents;
        std::array<std::size_t, rules::most_kept_states> kept{};
        std::array<std::size_t, rules::most_pass_sums> sums{};
    };

    HostPart<A> part(const Parameter& each, const UpdateTable& table) {
        const TrainedGroup& in = listed_[each.group];
        const GroupGeometry& group = in.state->geometry();
        const PlacedParameter& parameter = group.parameters[each.parameter];
        HostPart<A> of;
        of.numbers.extents = each.extents;
        for (std::size_t k = 0; k < rule_.kept.size(); ++k) { of.numbers.kept[k] = kept_.data() + each.kept[k]; }
        for (std::size_t i = 0; i < rule_.sums.size(); ++i) { of.numbers.sums[i] = sums_.data() + each.sums[i]; }
        of.update = table.updates() + in.group->update_of(each.parameter);
        of.part = parameter.part;
        const IndexRange held = intersect(parameter.range, group.updated);
        if (held.empty()) { return of; }
        of.elements = relative_to(held, parameter.range.begin);
        of.counts = group.replica(each.parameter, group.table.updated) == 0;
        const std::size_t first = held.begin - group.updated.begin;
        const AnyUpdateWork whole = work_in_step(in, nullptr, nullptr);
        const AnyUpdateWork its = whole.part(first, held.size());
        of.master = its.master;
        of.rest = its.rest;
        of.gradient = its.gradient;
        of.direction = directions_.data() + first;
        of.conversions = its.conversions;
        of.keeps_master = its.gathered != nullptr;
        of.updated = its.updated;
        of.gradients = its.gradients;
        return of;
    }
    /// Gives a stream a pass over a parameter; behind the last one, what writes its directions.
    void give(const Stream& stream, const Parameter& each, const HostPart<A>& part, std::size_t pass) const {
        if (host_reads(stream)) { return rule_.run(stream, part, pass); }
        rule_.launch(stream, work_at_rest(listed_[each.group], nullptr, nullptr, nullptr), {part, pass});
    }
    void run_pass(std::size_t pass, Rank& rank, const UpdateTable& table, const std::uint32_t* skip,
                  SourceLocation where) {
        const Stream compute = rank.compute_stream();
        const Stream reduction = rank.reduction_stream();
        const auto for_each_taken = [&](const auto& f) {
            for (const Parameter& each : parameters_) {
                if (listed_[each.group].taken) { f(each, part(each, table)); }
            }
        };
        for_each_taken([&](const Parameter& each, const HostPart<A>& of) { give(compute, each, of, pass); });
        reduction.wait(compute.record());
        all_reduce_span(rank.world(), TreelessOp(ReduceOp::sum),
                        sums_.span().subspan(first_[pass], first_[pass + 1] - first_[pass]), reduction,
                        {where, subject_});
        compute.wait(reduction.record());
        for_each_taken([&](const Parameter& /*each*/, const HostPart<A>& of) {
            rule_.settle(compute, {of, pass}, skip);
        });
    }
    void update(std::size_t g, const Stream& stream, const UpdateTable& table, const std::uint32_t* skip) {
        for (const Parameter& each : parameters_) {
            if (each.group != g) { continue; }
            const HostPart<A> of = part(each, table);
            if (!of.elements.empty()) { give(stream, each, of, passes_); }
        }
        work_at_rest(listed_[g], table.updates(), listed_[g].steps, skip).along(directions_.data()).give(stream);
    }

    FactoredFunctions<A> rule_;
    std::size_t passes_;
    List<Parameter> parameters_;
    std::array<std::size_t, rules::most_pass_sums + 1> first_{};  // of each pass's sums
    HostBuffer<A> kept_;
    HostBuffer<double> sums_;
    HostBuffer<A> directions_;
    const engine::CallSubject* subject_ = nullptr;
};

}  // namespace shardkit::detail
