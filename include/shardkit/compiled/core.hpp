// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/host/engine.hpp>
#include <shardkit/compiled/interface.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

// The classes of interface.hpp for one engine, made of the classes that a header-only program has: those of a step.

#ifndef SHARDKIT_COMPILED_PRECISIONS
/// The precisions that the core is compiled for: a Precisions<...>, the same in all of its source files.
#define SHARDKIT_COMPILED_PRECISIONS                                                                  \
    ::shardkit::Precisions<::shardkit::DefaultPrecision<double>, ::shardkit::DefaultPrecision<float>, \
                           ::shardkit::DefaultPrecision<::shardkit::bf16>,                            \
                           ::shardkit::DefaultPrecision<::shardkit::fp16>>
#endif

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

using AllPrecisions = SHARDKIT_COMPILED_PRECISIONS;

class Checkpoints;
class Parts;
class Reshards;
class Schedules;
inline constexpr std::size_t state_formats = static_cast<std::size_t>(StateFormat::block8) + 1;

/// What an engine's core has.
struct EngineCore {
    const char* name;  ///< for errors
    // What source files of its own have, which are found here unless the engine is the host's; null: not linked.
    RuleOptimizer* (*make_optimizer[state_formats])(const Groups& groups, const shardkit::detail::AnyOptions& options,
                                                    std::vector<ParamGroup>&& param_groups,
                                                    SourceLocation where) = {};
    const Checkpoints* checkpoints = nullptr;
    const Parts* parts = nullptr;
    const Schedules* schedules = nullptr;
    const Reshards* reshards = nullptr;
};
/// Returns an engine's; one source file of the core specialises it.
template <class Engine>
const EngineCore& engine_core() noexcept;
template <>
const EngineCore& engine_core<host::Engine>() noexcept;

[[noreturn]] void refuse_part(const EngineCore& core, std::string_view part, std::string_view header,
                              SourceLocation where);
/// Returns a part of an object's engine: Of<Engine> on the host, and what is linked on others.
/// @throws UsageError when the program has none, which names the header that has it
template <template <class> class Of, class Part>
const Part& part_of(const Object& object, const Part* EngineCore::*part, std::string_view what,
                    std::string_view header, SourceLocation where) {
    static const Of<host::Engine> of_host;
    const EngineCore& core = object.engine();
    if (&core == &engine_core<host::Engine>()) { return of_host; }
    if (core.*part == nullptr) { refuse_part(core, what, header, where); }
    return *(core.*part);
}

[[noreturn]] void refuse_engine(const EngineCore& given, const EngineCore& expected, SourceLocation where);
/// @throws UsageError when an object is of another engine
template <class Engine>
void require_engine(const Object& object, SourceLocation where) {
    const EngineCore& expected = engine_core<Engine>();
    if (&object.engine() != &expected) { refuse_engine(object.engine(), expected, where); }
}
/// Returns an object as what it is on an engine. @throws UsageError when it is of another one
template <class T, class Object>
T& on(Object& object, SourceLocation where) {
    require_engine<typename std::remove_const_t<T>::Engine>(object, where);
    return static_cast<T&>(object);
}

template <class EngineType>
class LossScaleOf final : public LossScale {
  public:
    using Engine = EngineType;
    explicit LossScaleOf(shardkit::LossScale<Engine> scale)
        : LossScale(engine_core<Engine>()), core(std::move(scale)) {}

    LossScaleState state() const override { return shardkit::detail::Access::now(core); }
    const LossScaleState* data() const noexcept override { return core.data(); }

    shardkit::LossScale<Engine> core;
};
/// Returns a loss scale as what it is on an engine; null for none.
template <class Engine>
shardkit::LossScale<Engine>* loss_scale_on(LossScale* scale, SourceLocation where) {
    return scale == nullptr ? nullptr : &on<LossScaleOf<Engine>>(*scale, where).core;
}

template <class Engine>
struct NormOf {
    using Core = shardkit::GlobalNorm<Engine>;

    /// A norm without its type.
    class Reader final : public NormReader {
      public:
        double value(const Norm& norm, SourceLocation where) const override { return from(norm).value(where); }
        FoundInf found_inf(const Norm& norm, SourceLocation where) const override {
            return from(norm).found_inf(where);
        }
        const double* data(const Norm& norm, SourceLocation where) const override { return from(norm).data(where); }
        ClipCoefficient clip(const Norm& norm, double max_norm, SourceLocation where) const override {
            return shardkit::clip(from(norm), max_norm, where);
        }
    };
    static Norm to(const Core& norm) noexcept {
        static const Reader reader;
        Norm::Facts facts;
        std::memcpy(&facts, static_cast<const void*>(&norm), sizeof(norm));
        return {&reader, facts};
    }

  private:
    static_assert(sizeof(Core) == sizeof(Norm::Facts) && std::is_trivially_copyable_v<Core>);
    static Core from(const Norm& value) noexcept {
        alignas(Core) std::byte memory[sizeof(Core)];
        std::memcpy(memory, &value.facts, sizeof(Core));
        return *std::launder(reinterpret_cast<const Core*>(memory));
    }
};

template <class EngineType>
class ReducedOf final : public Reduced {
  public:
    using Engine = EngineType;
    explicit ReducedOf(shardkit::Reduced<Engine> reduced)
        : Reduced(engine_core<Engine>()), core(std::move(reduced)) {}

    double divisor() const noexcept override { return core.divisor(); }
    bool has_loss_scale() const noexcept override { return core.has_loss_scale(); }
    std::uint64_t identity() const noexcept override { return core.identity(); }
    Norm global_norm(NormKind kind, SourceLocation where) const override {
        return NormOf<Engine>::to(shardkit::global_norm(core, kind, where));
    }

    shardkit::Reduced<Engine> core;
};

/// The core's group behind a Group.
template <class EngineType>
class AnyGroup : public Group {
  public:
    using Engine = EngineType;
    virtual shardkit::detail::Group<Engine>& core() noexcept = 0;
    /// Returns the same for the core's verbs that take a layer.
    GroupRef<Engine> ref() { return shardkit::detail::Access::make<GroupRef<Engine>>(core()); }
    Groups* list(std::span<Group* const> groups) const override;

  protected:
    AnyGroup() : Group(engine_core<Engine>()) {}
};

template <class EngineType>
class AccumulationOf final : public Accumulation {
  public:
    using Engine = EngineType;
    explicit AccumulationOf(shardkit::Accumulation<Engine> accumulation)
        : Accumulation(engine_core<Engine>()), core(std::move(accumulation)) {}

    void set_microbatches(std::size_t count, SourceLocation where) override { core.set_microbatches(count, where); }
    void set_microbatches(Group& group, std::size_t count, SourceLocation where) override {
        auto layer = on<AnyGroup<Engine>>(group, where).ref();
        core.set_microbatches(layer, count, where);
    }
    void add_zero(Group& group, SourceLocation where) override {
        auto layer = on<AnyGroup<Engine>>(group, where).ref();
        core.add_zero(layer, where);
    }
    void skip(Group& group, SourceLocation where) override {
        auto layer = on<AnyGroup<Engine>>(group, where).ref();
        core.skip(layer, where);
    }
    Reduced* reduce(const Divisor& divisor, LossScale* scale, SourceLocation where) override {
        auto* const scaled = loss_scale_on<Engine>(scale, where);
        return new ReducedOf<Engine>(scaled == nullptr ? shardkit::reduce(std::move(core), divisor, where)
                                                       : shardkit::reduce(std::move(core), divisor, *scaled, where));
    }

    shardkit::Accumulation<Engine> core;
};

/// An optimizer of an engine; `Base` is Optimizer, or RuleOptimizer where it is of one rule.
template <class EngineType, class Base>
class AnyOptimizer : public Base {
  public:
    using Engine = EngineType;
    virtual shardkit::Optimizer<Engine>& core() noexcept = 0;

    Norm step(Accumulation& accumulation, const StepFacts& options, SourceLocation where) override {
        auto& given = on<AccumulationOf<Engine>>(accumulation, where).core;
        return NormOf<Engine>::to(core().step(std::move(given), facts(options, where), where));
    }
    void step(Reduced& reduced, const ClipCoefficient* coefficient, SourceLocation where) override {
        auto& given = on<ReducedOf<Engine>>(reduced, where).core;
        if (coefficient == nullptr) {
            core().step(std::move(given), where);
        } else {
            core().step(std::move(given), *coefficient, where);
        }
    }
    void step_in_backward(Accumulation& accumulation, const StepFacts& options, SourceLocation where) override {
        core().step_in_backward(on<AccumulationOf<Engine>>(accumulation, where).core, facts(options, where), where);
    }
    double learning_rate() override { return core().learning_rate(); }
    void set_learning_rate(double learning_rate, SourceLocation where) override {
        core().set_learning_rate(learning_rate, where);
    }
    void set_learning_rate_factor(double factor, SourceLocation where) override {
        core().set_learning_rate_factor(factor, where);
    }
    std::uint64_t steps(const Group& group, SourceLocation where) override {
        const auto layer = const_cast<AnyGroup<Engine>&>(on<const AnyGroup<Engine>>(group, where)).ref();
        return core().steps(layer, where);
    }
    void list_shards(std::vector<ShardInfo>& list) override { list = core().shards(); }
    void* behind() noexcept override { return &core(); }

  protected:
    AnyOptimizer() : Base(engine_core<Engine>()) {}

  private:
    static shardkit::StepOptions<Engine> facts(const StepFacts& facts, SourceLocation where) {
        return {facts.divisor, facts.max_norm, loss_scale_on<Engine>(facts.loss_scale, where), facts.norm};
    }
};

/// Returns what an engine's core has in an optimizer's place. @throws UsageError when it is of another engine
template <class Engine>
shardkit::Optimizer<Engine>& core_as(Optimizer& optimizer, SourceLocation where) {
    require_engine<Engine>(optimizer, where);
    return *static_cast<shardkit::Optimizer<Engine>*>(optimizer.behind());
}

// Which several source files would compile again.
extern template class AnyOptimizer<host::Engine, Optimizer>;
extern template class AnyOptimizer<host::Engine, RuleOptimizer>;

/// An optimizer of the core of one rule: a given one, or its own.
template <class Core>
class OptimizerRef final : public AnyOptimizer<typename Core::Engine, RuleOptimizer> {
    using Options = typename Core::Options;

  public:
    explicit OptimizerRef(Core& core) noexcept : core_(core) {}
    explicit OptimizerRef(std::unique_ptr<Core> core) noexcept : owned_(std::move(core)), core_(*owned_) {}
    Core& core() noexcept override { return core_; }
    shardkit::detail::AnyOptions options() const override { return {nullptr, core_.options()}; }
    double given_learning_rate() const noexcept override { return core_.given_learning_rate(); }
    void set_options(const shardkit::detail::AnyOptions& options, SourceLocation where) override {
        core_.set_options(options.as<Options>(), where);
    }
    std::span<const ParamGroup> param_groups() const noexcept override { return core_.param_groups(); }
    void set_param_groups(const std::vector<ParamGroup>& param_groups, SourceLocation where) override {
        core_.set_param_groups(param_groups, where);
    }

  private:
    std::unique_ptr<Core> owned_;
    Core& core_;
};

}  // namespace SHARDKIT_CHECKED_BUILD

// And of the classes behind them, which checkpoints, plans and schedules use.
extern template class shardkit::Context<shardkit::host::Engine>;
extern template class shardkit::Groups<shardkit::host::Engine>;
extern template class shardkit::Accumulation<shardkit::host::Engine>;
extern template class shardkit::Optimizer<shardkit::host::Engine>;
extern template class shardkit::detail::Group<shardkit::host::Engine>;
extern template class shardkit::detail::ParameterStore<shardkit::host::Engine>;
extern template class shardkit::detail::GradientStore<shardkit::host::Engine>;
extern template class shardkit::detail::NormMemory<shardkit::host::Engine>;
