// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/compiled/core_model.hpp>
#include <shardkit/compiled/define_optimizers.hpp>
#include <shardkit/compiled/parts_interface.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/plan/model_summary.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/verify/gradient_norms.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>

// Defines the classes of parts_interface.hpp for one engine.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

/// Returns the products that an engine's memory is multiplied by.
/// @throws UsageError when they are of the other kind of engine, or none where the library has none of its own
template <class Engine>
shardkit::detail::AnyProducts<typename Engine::Stream> products_on(const Products& given, SourceLocation where) {
    if constexpr (shardkit::detail::may_host_read<Engine>) {
        if (given.of_host != nullptr) { return *given.of_host; }
        if (given.of_device == nullptr) {
            return shardkit::detail::AnyProducts<typename Engine::Stream>(HostProducts{});
        }
    } else if (given.of_device != nullptr) {
        return *given.of_device;
    }
    throw_usage_error(where, "Muon on the engine ", engine_core<Engine>().name, ": ",
                      given.of_host == nullptr && given.of_device == nullptr ? "no products of matrices"
                                                                             : "products of another engine's memory",
                      ", expected a library that multiplies this engine's, as gpu::CublasProducts over NCCL");
}

template <class EngineType>
class PartsOf final : public Parts {
  public:
    using Engine = EngineType;

    void describe(const Groups& groups, Optimizer* optimizer, std::vector<planner::GroupDescription>& into,
                  SourceLocation where) const override {
        into = with(
            optimizer, [&] { return describe_groups(model(groups, where), where); },
            [&](auto& given) { return describe_groups(model(groups, where), given, where); }, where);
    }
    Plan plan(const Groups& groups, Optimizer* optimizer, const planner::PlanOptions& options,
              SourceLocation where) const override {
        return with(
            optimizer, [&] { return shardkit::plan(model(groups, where), options, where); },
            [&](auto& given) { return shardkit::plan(model(groups, where), given, options, where); }, where);
    }
    std::string model_summary(const Groups& groups, Optimizer* optimizer, SourceLocation where) const override {
        return with(
            optimizer, [&] { return shardkit::model_summary(model(groups, where), where); },
            [&](auto& given) { return shardkit::model_summary(model(groups, where), given, where); }, where);
    }

    void verify_replicas(const Groups& groups, Optimizer* optimizer, LossScale* loss_scale,
                         SourceLocation where) const override {
        shardkit::detail::verify_replicas<Engine>(
            model(groups, where), optimizer == nullptr ? nullptr : &core_as<Engine>(*optimizer, where),
            loss_scale_on<Engine>(loss_scale, where), where);
    }
    std::vector<ValuesHash> hash_values(const Groups& groups, SourceLocation where) const override {
        return shardkit::hash_values(model(groups, where), where);
    }
    std::vector<ValuesHash> hash_values(const Reduced& reduced, SourceLocation where) const override {
        return shardkit::hash_values(on<const ReducedOf<Engine>>(reduced, where).core, where);
    }
    std::vector<ValuesHash> hash_values(Optimizer& optimizer, SourceLocation where) const override {
        return shardkit::hash_values(core_as<Engine>(optimizer, where), where);
    }
    GradientNorms gradient_norms(const Reduced& reduced, SourceLocation where) const override {
        return shardkit::gradient_norms(on<const ReducedOf<Engine>>(reduced, where).core, where);
    }

    MovingAverage* make_moving_average(const Groups& average, const Groups& of, SourceLocation where) const override {
        struct Made final : MovingAverage {
            Made(const GroupsOf<Engine>& to, const GroupsOf<Engine>& from, SourceLocation at)
                : MovingAverage(engine_core<Engine>()), core(to.model(), from.model(), at) {}
            void update(double decay, SourceLocation at) override { core.update(decay, at); }
            shardkit::MovingAverage<Engine, AllPrecisions> core;
        };
        return new Made(on<const GroupsOf<Engine>>(average, where), on<const GroupsOf<Engine>>(of, where), where);
    }
    Optimizer* combine(const Groups& groups, std::span<Optimizer* const> parts, SourceLocation where) const override {
        struct Made final : AnyOptimizer<Engine, Optimizer> {
            Made(const shardkit::Groups<Engine>& of,
                 std::vector<std::reference_wrapper<shardkit::Optimizer<Engine>>> listed, SourceLocation at)
                : made(of, std::move(listed), at) {}
            CombinedOptimizer<Engine>& core() noexcept override { return made; }
            CombinedOptimizer<Engine> made;
        };
        std::vector<std::reference_wrapper<shardkit::Optimizer<Engine>>> listed;
        for (Optimizer* const part : parts) { listed.emplace_back(core_as<Engine>(*part, where)); }
        return new Made(model(groups, where), std::move(listed), where);
    }
    Muon* make_muon(const Groups& groups, const Products& products, const MuonOptions& options,
                    const AdamWOptions& rest, const Matrices& matrices, const std::vector<ParamGroup>& param_groups,
                    SourceLocation where) const override {
        using Core = shardkit::Muon<Engine, AllPrecisions>;
        struct Made final : AnyOptimizer<Engine, Muon> {
            Made(const shardkit::Model<Engine, AllPrecisions>& of, const Products& by, const MuonOptions& options,
                 const AdamWOptions& rest, const Matrices& matrices, const std::vector<ParamGroup>& param_groups,
                 SourceLocation at)
                : made(of, products_on<Engine>(by, at), options, rest, matrices, param_groups, at) {}
            Core& core() noexcept override { return made; }
            RuleOptimizer* matrices() override { return new OptimizerRef(made.matrices()); }
            RuleOptimizer* rest() override { return new OptimizerRef(made.rest()); }
            std::size_t bytes_of_exchange() override { return made.matrices().bytes_of_exchange(); }
            Core made;
        };
        return new Made(on<const GroupsOf<Engine>>(groups, where).model(), products, options, rest, matrices,
                        param_groups, where);
    }

  private:
    static const shardkit::Groups<Engine>& model(const Groups& groups, SourceLocation where) {
        return on<const GroupsOf<Engine>>(groups, where).core;
    }
    template <class Without, class With>
    static auto with(Optimizer* optimizer, const Without& without, const With& given, SourceLocation where) {
        return optimizer == nullptr ? without() : given(core_as<Engine>(*optimizer, where));
    }
};

}  // namespace SHARDKIT_CHECKED_BUILD
