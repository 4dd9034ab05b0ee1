// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shardkit/compiled/core.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/step/gradients.hpp>
#include <shardkit/step/local_shards.hpp>

// A group of the core.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

/// A group of precision P.
template <class EngineType, class P>
class GroupOf final : public AnyGroup<EngineType> {
    using Engine = EngineType;
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
        using Precision = P;
        using Gradients = Handle;
        State* state;
        State& live(SourceLocation /*where*/) const noexcept { return *state; }
    };

  public:
    GroupOf(shardkit::Context<Engine>& context, const shardkit::detail::GroupValues& values,
            const shardkit::detail::AdoptedElements& adopted, SourceLocation where)
        : state_(context, values, adopted, where) {
        this->path = &state_.path();
        this->layout = &state_.layout();
        this->parameters = state_.geometry().parameters;
        this->updated = state_.geometry().updated;
        this->sources = state_.geometry().sources();
        this->trainable = state_.trainable();
        this->window_generation = &state_.parameters().generation();
        this->gradient_generation = &state_.gradient_generation();
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
        return P::gathers_codes ? state_.parameters().scales(parameter) : nullptr;
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
        const auto& given = on<const ReducedOf<Engine>>(reduced, where).core;
        auto& state = Access::state_of(given, layer, std::string_view("read_full"), where);
        state.read_full_gradient(parameter, Access::scale(given, state.context()), values, where);
    }

    void take_gradients(Accumulation& accumulation, SourceLocation where) override {
        Layer layer{&state_};
        Handle taken = on<AccumulationOf<Engine>>(accumulation, where).core.gradients(layer, where);
        Access::release(taken);  // the trainer's file has the handle
    }
    void add_gradients(Accumulation& accumulation, SourceLocation where) override {
        on<AccumulationOf<Engine>>(accumulation, where).core.add(Access::make<Handle>(state_, where), where);
    }
    void drop_gradients() noexcept override { state_.drop_gradients(); }
    void* gradients_of(std::size_t source) noexcept override { return state_.gradients().of_source(source).data(); }
    bool overwrites(std::size_t parameter) noexcept override { return state_.gradients().overwrites(parameter); }

    void show_updated(bool to_write, ShownTo show, void* to, SourceLocation where) override {
        const auto shown = [&](auto values) {
            using Value = std::remove_const_t<typename decltype(values)::value_type>;
            show(to, element_type_of<Value>, const_cast<Value*>(values.data()));
        };
        if (to_write) {
            shardkit::detail::write_updated(state_, shown, where);
        } else {
            shardkit::detail::show_updated(state_, shown, where);
        }
    }
    Sums sums(const Reduced* reduced, SourceLocation where) override {
        const IndexRange flat = state_.gradients().reduced_range();
        if (reduced == nullptr) { return {shardkit::detail::own_sums(state_, where).data(), flat, 1}; }
        const Layer layer{&state_};
        const auto shard = gradient_shard(on<const ReducedOf<Engine>>(*reduced, where).core, layer, where);
        return {const_cast<typename P::Reduction*>(shard.sums().data()), flat, shard.scale()};
    }

  private:
    State state_;
};

}  // namespace SHARDKIT_CHECKED_BUILD
