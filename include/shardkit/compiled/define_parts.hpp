// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/compiled/define_optimizers.hpp>
#include <shardkit/compiled/parts_interface.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/plan/model_summary.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/verify/gradient_norms.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>

// Defines the functions of parts_interface.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

void describe(const Model& groups, Optimizer* optimizer, std::vector<planner::GroupDescription>& into,
              SourceLocation where) {
    into = optimizer == nullptr ? shardkit::describe_groups(groups, where)
                                : shardkit::describe_groups(groups, core_of(*optimizer), where);
}
Plan plan(const Model& groups, Optimizer* optimizer, const planner::PlanOptions& options, SourceLocation where) {
    return optimizer == nullptr ? shardkit::plan(groups, options, where)
                                : shardkit::plan(groups, core_of(*optimizer), options, where);
}
std::string model_summary(const Model& groups, Optimizer* optimizer, SourceLocation where) {
    return optimizer == nullptr ? shardkit::model_summary(groups, where)
                                : shardkit::model_summary(groups, core_of(*optimizer), where);
}

void verify_replicas(const Model& groups, Optimizer* optimizer, const LossScale* loss_scale, SourceLocation where) {
    shardkit::detail::verify_replicas(groups, optimizer == nullptr ? nullptr : &core_of(*optimizer), loss_scale,
                                      where);
}
std::vector<ValuesHash> hash_values(const Model& groups, SourceLocation where) {
    return shardkit::hash_values(groups, where);
}
std::vector<ValuesHash> hash_values(const Reduced& reduced, SourceLocation where) {
    return shardkit::hash_values(reduced, where);
}
std::vector<ValuesHash> hash_values(Optimizer& optimizer, SourceLocation where) {
    return shardkit::hash_values(core_of(optimizer), where);
}
GradientNorms gradient_norms(const Reduced& reduced, SourceLocation where) {
    return shardkit::gradient_norms(reduced, where);
}

MovingAverage* make_moving_average(const Model& average, const Model& of, SourceLocation where) {
    struct Made final : MovingAverage {
        Made(const Model& to, const Model& from, SourceLocation at) : core(to, from, at) {}
        void update(double decay, SourceLocation at) override { core.update(decay, at); }
        shardkit::MovingAverage core;
    };
    return new Made(average, of, where);
}
Optimizer* combine(const Model& groups, std::span<Optimizer* const> parts, SourceLocation where) {
    struct Made final : AnyOptimizer<Optimizer> {
        Made(const shardkit::Model& of, std::vector<std::reference_wrapper<shardkit::Optimizer>> listed,
             SourceLocation at)
            : made(of, std::move(listed), at) {}
        CombinedOptimizer& core() noexcept override { return made; }
        CombinedOptimizer made;
    };
    std::vector<std::reference_wrapper<shardkit::Optimizer>> listed;
    for (Optimizer* const part : parts) { listed.emplace_back(core_of(*part)); }
    Optimizer* const made = new Made(groups, std::move(listed), where);
    for (Optimizer* const part : parts) { part->combined = true; }
    return made;
}
class MuonOf final : public AnyOptimizer<Muon> {
    using Core = shardkit::Muon;

  public:
    template <class... Arguments>
    explicit MuonOf(const Arguments&... arguments) : core_(arguments...) {}
    Core& core() noexcept override { return core_; }
    RuleOptimizer* matrices() override { return new OptimizerRef(core_.matrices()); }
    RuleOptimizer* rest() override { return new OptimizerRef(core_.rest()); }
    std::size_t bytes_of_exchange() override { return core_.matrices().bytes_of_exchange(); }

  private:
    Core core_;
};
Muon* make_muon(const Model& groups, const shardkit::detail::AnyProducts<Stream>* products,
                const MuonOptions& options, const AdamWOptions& rest, const Matrices& matrices,
                const std::vector<ParamGroup>& param_groups, SourceLocation where) {
    return products == nullptr ? new MuonOf(groups, options, rest, matrices, param_groups, where)
                               : new MuonOf(groups, *products, options, rest, matrices, param_groups, where);
}

}  // namespace SHARDKIT_CHECKED_BUILD
