// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <shardkit/compiled/core_model.hpp>
#include <shardkit/compiled/parts_interface.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/gradient_norms.hpp>
#include <shardkit/optim/hash_values.hpp>
#include <shardkit/optim/model_summary.hpp>
#include <shardkit/optim/moving_average.hpp>
#include <shardkit/optim/muon.hpp>
#include <shardkit/optim/verify_replicas.hpp>
#include <shardkit/step/plan_model.hpp>

// Defines the functions of parts_interface.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

// The parts are of the engines of the host.
namespace {
using Engine = host::Engine;
const shardkit::Groups<Engine>& core_of(const Groups& groups, SourceLocation where) {
    return on<const GroupsOf<Engine>>(groups, where).core;
}
const shardkit::Reduced<Engine>& core_of(const Reduced& reduced, SourceLocation where) {
    return on<const ReducedOf<Engine>>(reduced, where).core;
}
/// Null for none.
shardkit::Optimizer<Engine>* core_of(Optimizer* optimizer, SourceLocation where) {
    if (optimizer == nullptr) { return nullptr; }
    return &core_as<Engine>(*optimizer, where);
}
}  // namespace

void describe(const Groups& groups, Optimizer* optimizer, std::vector<planner::GroupDescription>& into,
              SourceLocation where) {
    auto* const given = core_of(optimizer, where);
    into = given == nullptr ? describe_groups(core_of(groups, where), where)
                            : describe_groups(core_of(groups, where), *given, where);
}
Plan plan(const Groups& groups, Optimizer* optimizer, const planner::PlanOptions& options, SourceLocation where) {
    auto* const given = core_of(optimizer, where);
    return given == nullptr ? shardkit::plan(core_of(groups, where), options, where)
                            : shardkit::plan(core_of(groups, where), *given, options, where);
}
std::string model_summary(const Groups& groups, Optimizer* optimizer, SourceLocation where) {
    auto* const given = core_of(optimizer, where);
    return given == nullptr ? shardkit::model_summary(core_of(groups, where), where)
                            : shardkit::model_summary(core_of(groups, where), *given, where);
}

void verify_replicas(const Groups& groups, Optimizer* optimizer, LossScale* loss_scale, SourceLocation where) {
    shardkit::detail::verify_replicas<Engine>(core_of(groups, where), core_of(optimizer, where),
                                              loss_scale_on<Engine>(loss_scale, where), where);
}
std::vector<ValuesHash> hash_values(const Groups& groups, SourceLocation where) {
    return shardkit::hash_values(core_of(groups, where), where);
}
std::vector<ValuesHash> hash_values(const Reduced& reduced, SourceLocation where) {
    return shardkit::hash_values(core_of(reduced, where), where);
}
std::vector<ValuesHash> hash_values(Optimizer& optimizer, SourceLocation where) {
    return shardkit::hash_values(*core_of(&optimizer, where), where);
}
std::uint64_t hash_of_part(const PlacedParameter& parameter, const void* part, std::size_t count, std::size_t bytes,
                           SourceLocation where) {
    return shardkit::detail::hash_of_part(parameter, part, count, bytes, where);
}
GradientNorms gradient_norms(const Reduced& reduced, SourceLocation where) {
    return shardkit::gradient_norms(core_of(reduced, where), where);
}

MovingAverage* make_moving_average(const Groups& average, const Groups& of, SourceLocation where) {
    struct Made final : MovingAverage {
        Made(const GroupsOf<Engine>& to, const GroupsOf<Engine>& from, SourceLocation where)
            : MovingAverage(engine_core<Engine>()), core(to.model(), from.model(), where) {}
        void update(double decay, SourceLocation at) override { core.update(decay, at); }
        shardkit::MovingAverage<Engine, AllPrecisions> core;
    };
    return new Made(on<const GroupsOf<Engine>>(average, where), on<const GroupsOf<Engine>>(of, where), where);
}

Optimizer* combine(const Groups& groups, std::span<Optimizer* const> parts, SourceLocation where) {
    struct Made final : AnyOptimizer<Engine, Optimizer> {
        using Core = CombinedOptimizer<Engine>;
        Made(const shardkit::Groups<Engine>& model,
             std::vector<std::reference_wrapper<shardkit::Optimizer<Engine>>> of, SourceLocation where)
            : made(model, std::move(of), where) {}
        Core& core() noexcept override { return made; }
        Core made;
    };
    std::vector<std::reference_wrapper<shardkit::Optimizer<Engine>>> listed;
    for (Optimizer* const part : parts) { listed.emplace_back(*core_of(part, where)); }
    return new Made(core_of(groups, where), std::move(listed), where);
}

Muon* make_muon(const Groups& groups, const shardkit::detail::AnyProducts<host::HostStream>* products,
                const MuonOptions& options, const AdamWOptions& rest, const Matrices& matrices,
                const std::vector<ParamGroup>& param_groups, SourceLocation where) {
    using Core = shardkit::Muon<Engine, AllPrecisions>;
    struct Made final : AnyOptimizer<Engine, Muon> {
        Made(const shardkit::Model<Engine, AllPrecisions>& model,
             const shardkit::detail::AnyProducts<host::HostStream>& products, const MuonOptions& options,
             const AdamWOptions& rest, const Matrices& matrices, const std::vector<ParamGroup>& param_groups,
             SourceLocation where)
            : made(model, products, options, rest, matrices, param_groups, where) {}
        Core& core() noexcept override { return made; }
        RuleOptimizer* matrices() override { return new OptimizerRef(made.matrices()); }
        RuleOptimizer* rest() override { return new OptimizerRef(made.rest()); }
        std::size_t bytes_of_exchange() override { return made.matrices().bytes_of_exchange(); }
        Core made;
    };
    const shardkit::detail::AnyProducts<host::HostStream> own{HostProducts{}};
    return new Made(on<const GroupsOf<Engine>>(groups, where).model(), products == nullptr ? own : *products, options,
                    rest, matrices, param_groups, where);
}

}  // namespace SHARDKIT_CHECKED_BUILD
