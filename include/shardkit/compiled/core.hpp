// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/host/engine.hpp>
#include <shardkit/compiled/interface.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/gradients.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/step/summon_full_params.hpp>

// What the functions of interface.hpp work on: the core's own classes for the engines of the host.

#ifndef SHARDKIT_COMPILED_PRECISIONS
/// The precisions that the core is compiled for: a Precisions<...>, the same in all of its source files.
#define SHARDKIT_COMPILED_PRECISIONS                                                                  \
    ::shardkit::Precisions<::shardkit::DefaultPrecision<double>, ::shardkit::DefaultPrecision<float>, \
                           ::shardkit::DefaultPrecision<::shardkit::bf16>,                            \
                           ::shardkit::DefaultPrecision<::shardkit::fp16>>
#endif

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

using Engine = host::Engine;
using AllPrecisions = SHARDKIT_COMPILED_PRECISIONS;

class Context {
  public:
    explicit Context(shardkit::Context<Engine>& rank) noexcept : core(rank) {}
    shardkit::Context<Engine>& core;
};

/// A list of groups that the core takes as a model of precisions P.
template <class P>
class ModelOf : public shardkit::Groups<Engine> {
    using Base = shardkit::Groups<Engine>;

  public:
    using Precision = P;
    using typename Base::Member;

    explicit ModelOf(shardkit::detail::List<Member> members) : Base(std::move(members)) {}
    explicit ModelOf(const Base& groups) : Base(groups) {}
    static Member member_of(shardkit::detail::Group<Engine>& group) { return Base::member(group); }

    /// A Model takes parts of models.
    shardkit::Model<Engine, P> model() const {
        const ModelOf none{shardkit::detail::List<Member>{}};
        return shardkit::Model<Engine, P>(*this, none);
    }
};

class Groups {
  public:
    std::vector<Group*> listed;
    shardkit::Groups<Engine> core;
};

class Accumulation {
  public:
    shardkit::Accumulation<Engine> core;
};
class Reduced {
  public:
    shardkit::Reduced<Engine> core;
};
class LossScale {
  public:
    shardkit::LossScale<Engine> core;
};
class OpenWindows {
  public:
    shardkit::FullParams<Engine> core;
};

class Optimizer {
  public:
    virtual ~Optimizer() = default;
    Optimizer(Optimizer&&) = delete;

    virtual shardkit::Optimizer<Engine>& core() noexcept = 0;
    virtual const void* options() const noexcept = 0;
    virtual double given_learning_rate() const noexcept = 0;
    virtual void set_options(const void* options, SourceLocation where) = 0;
    virtual std::span<const ParamGroup> param_groups() const noexcept = 0;
    virtual void set_param_groups(const std::vector<ParamGroup>& param_groups, SourceLocation where) = 0;

  protected:
    Optimizer() = default;
};

/// The core's group behind a Group.
class AnyGroup : public Group {
  public:
    virtual shardkit::detail::Group<Engine>& core() noexcept = 0;
    /// Returns the same for the core's verbs that take a layer.
    GroupRef<Engine> ref() { return shardkit::detail::Access::make<GroupRef<Engine>>(core()); }
    static AnyGroup& of(Group& group) noexcept { return static_cast<AnyGroup&>(group); }
    static const AnyGroup& of(const Group& group) noexcept { return static_cast<const AnyGroup&>(group); }
};

template <class P>
constexpr ElementTypes element_types_of() noexcept {
    return {element_type_of<typename P::Gather>, element_type_of<typename P::Gradient>,
            element_type_of<typename P::Reduction>, element_type_of<typename P::Master>};
}

/// A group of precision P.
template <class P>
class GroupOf final : public AnyGroup {
    struct State final : shardkit::detail::GroupState<Engine, P> {
        using Base = shardkit::detail::GroupState<Engine, P>;
        using Base::Base;
        using Base::check_whole;
        struct Group {};  // has no types of parameters
    };
    using Gather = typename P::Gather;
    using Handle = shardkit::Gradients<State, Partial<DataAxes>>;
    using Access = shardkit::detail::Access;
    /// The layer that the core's accumulation takes.
    struct Layer {
        using Gradients = Handle;
        State* state;
        State& live(SourceLocation /*where*/) const noexcept { return *state; }
    };

  public:
    GroupOf(shardkit::Context<Engine>& context, const shardkit::detail::GroupValues& values,
            std::span<Gather> adopted_parameters, std::span<typename P::Gradient> adopted_gradients,
            SourceLocation where)
        : state_(context, values, adopted_parameters, adopted_gradients, where) {
        path = &state_.path();
        layout = &state_.layout();
        parameters = state_.geometry().parameters;
        trainable = state_.trainable();
        window_generation = &state_.parameters().generation();
        gradient_generation = &state_.gradient_generation();
    }

    shardkit::detail::Group<Engine>& core() noexcept override { return state_; }
    std::size_t number_of(std::string_view name, SourceLocation where) const override {
        return state_.geometry().number_of(name, where);
    }
    std::size_t number_of(std::ptrdiff_t number, SourceLocation where) const override {
        return state_.geometry().number_of(number, where);
    }
    void list_shards(std::vector<ShardInfo>& list) override { list = state_.shards(); }

    void open_window(Gathers gathers, SourceLocation where) override { state_.open_window(gathers, where); }
    void use_window(SourceLocation opened) override { state_.use_window(opened); }
    void close_window() noexcept override { state_.close_window(); }
    void drop_full() noexcept override { state_.parameters().drop(); }
    const void* full_parameters() noexcept override { return state_.parameters().full().data(); }
    const float* scales(std::size_t parameter) override {
        if constexpr (P::gathers_codes) {
            return state_.parameters().scales(parameter);
        } else {
            return static_cast<void>(parameter), nullptr;
        }
    }

    void initialize(Initializer& values, SourceLocation where) override {
        const auto by_parameter = [&](std::string_view of_group, std::string_view name) {
            values.begin(of_group, name);
            return [&](std::uint64_t index) { return values.at(index); };
        };
        state_.initialize(by_parameter, where);
    }
    void load(std::size_t parameter, const shardkit::detail::TensorValueSource& values, std::size_t count,
              std::span<const std::byte> data, SourceLocation where) override {
        state_.check_whole("load", parameter, count, data, where);
        state_.write(parameter, values, where);
    }
    void read_full(std::size_t parameter, bool wanted, ElementType type, void* values, std::size_t count,
                   SourceLocation where) override {
        if (type == element_type_of<Gather>) {
            state_.read_full(parameter, wanted, std::span(static_cast<Gather*>(values), count), where);
        } else {
            state_.read_full(parameter, wanted, std::span(static_cast<double*>(values), count), where);
        }
    }
    void read_full_gradient(const Reduced& reduced, std::size_t parameter, std::span<double> values,
                            SourceLocation where) override {
        const Layer layer{&state_};
        auto& state = Access::state_of(reduced.core, layer, std::string_view("read_full"), where);
        state.read_full_gradient(parameter, Access::scale(reduced.core, state.context()), values, where);
    }

    void take_gradients(Accumulation& accumulation, SourceLocation where) override {
        Layer layer{&state_};
        Handle taken = accumulation.core.gradients(layer, where);
        Access::release(taken);  // the trainer's file has the handle
    }
    void add_gradients(Accumulation& accumulation, SourceLocation where) override {
        accumulation.core.add(Access::make<Handle>(state_, where), where);
    }
    void drop_gradients() noexcept override { state_.drop_gradients(); }
    void* full_gradients() noexcept override { return state_.gradients().full().data(); }
    bool overwrites(std::size_t parameter) noexcept override { return state_.gradients().overwrites(parameter); }

  private:
    State state_;
};

}  // namespace SHARDKIT_CHECKED_BUILD
