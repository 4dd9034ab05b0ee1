// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

/// A group.
class GroupOf final : public Group {
    using State = shardkit::detail::Group;
    using Handle = shardkit::Gradients<State, Partial<DataAxes>>;
    using Access = shardkit::detail::Access;
    /// The layer that the core's accumulation takes.
    struct Layer {
        using Gradients = Handle;
        State* state;
        State& live(SourceLocation /*where*/) const noexcept { return *state; }
    };
    /// What knows the element types of a precision.
    struct Typed {
        void (*parameter)(State& state, std::size_t parameter, bool wanted, ElementType type, void* values,
                          std::size_t count, SourceLocation where);
        void (*gradient)(State& state, std::size_t parameter, double scale, std::span<double> values,
                         SourceLocation where);
        void (*show_updated)(State& state, bool to_write, ShownTo show, void* to, SourceLocation where);
    };
    // Functions, as nvcc 13.0 does not compile lambdas in a variable template of a class template.
    template <class P>
    static void read_as(State& state, std::size_t parameter, bool wanted, ElementType type, void* values,
                        std::size_t count, SourceLocation where) {
        using Gather = typename P::Gather;
        auto& typed = *state.template as<P>();
        if (type == element_type_of<Gather>) {
            typed.read_full(parameter, wanted, std::span(static_cast<Gather*>(values), count), where);
        } else {
            typed.read_full(parameter, wanted, std::span(static_cast<double*>(values), count), where);
        }
    }
    template <class P>
    static void read_gradient_as(State& state, std::size_t parameter, double scale, std::span<double> values,
                                 SourceLocation where) {
        state.template as<P>()->read_full_gradient(parameter, scale, values, where);
    }
    template <class P>
    static void show_as(State& state, bool to_write, ShownTo show, void* to, SourceLocation where) {
        const auto shown = [&](auto values) {
            using Value = std::remove_const_t<typename decltype(values)::value_type>;
            show(to, element_type_of<Value>, const_cast<Value*>(values.data()));
        };
        if (to_write) {
            shardkit::detail::write_updated(*state.template as<P>(), shown, where);
        } else {
            shardkit::detail::show_updated(*state.template as<P>(), shown, where);
        }
    }
    template <class P>
    static constexpr Typed typed_of{&read_as<P>, &read_gradient_as<P>, &show_as<P>};

  public:
    /// Makes a group of precision P.
    template <class P>
    GroupOf(std::type_identity<P> /*precision*/, Rank& rank, const shardkit::detail::GroupValues& values,
            const shardkit::detail::AdoptedElements& adopted, SourceLocation where)
        : GroupOf(std::make_shared<shardkit::detail::GroupState<P>>(rank, values, adopted, where), typed_of<P>) {}

    void open_window(Gathers gathers, SourceLocation where) override { state_.open_window(gathers, where); }
    void use_window(SourceLocation opened) override { state_.use_window(opened); }
    void close_window() noexcept override { state_.close_window(); }
    void drop_full() noexcept override { state_.parameters().drop(); }
    const void* full_parameters() noexcept override { return state_.parameters().full().data(); }
    const float* scales(std::size_t parameter) override {
        return state_.geometry().sizes.codes.gathered ? state_.parameters().scales(parameter) : nullptr;
    }

    void read_full(std::size_t parameter, bool wanted, ElementType type, void* values, std::size_t count,
                   SourceLocation where) override {
        typed_.parameter(state_, parameter, wanted, type, values, count, where);
    }
    void read_full_gradient(const Reduced& reduced, std::size_t parameter, std::span<double> values,
                            SourceLocation where) override {
        const Layer layer{&state_};
        const auto& given = core_of(reduced);
        auto& state = Access::state_of(given, layer, std::string_view("read_full"), where);
        typed_.gradient(state, parameter, Access::scale(given, state.rank()), values, where);
    }

    void take_gradients(Accumulation& accumulation, SourceLocation where) override {
        Layer layer{&state_};
        Handle taken = core_of(accumulation).gradients(layer, where);
        Access::release(taken);  // the trainer's file has the handle
    }
    void add_gradients(Accumulation& accumulation, SourceLocation where) override {
        core_of(accumulation).add(Access::make<Handle>(state_, where), where);
    }
    void drop_gradients() noexcept override { state_.drop_gradients(); }
    void* gradients_of(std::size_t source) noexcept override { return state_.gradients().of_source(source).data(); }
    bool overwrites(std::size_t parameter) noexcept override { return state_.gradients().overwrites(parameter); }

    void show_updated(bool to_write, ShownTo show, void* to, SourceLocation where) override {
        typed_.show_updated(state_, to_write, show, to, where);
    }
    Sums sums(const Reduced* reduced, SourceLocation where) override {
        const IndexRange flat = state_.gradients().reduced_range();
        if (reduced == nullptr) { return {shardkit::detail::own_sums(state_, where).data(), flat, 1}; }
        const Layer layer{&state_};
        const auto& given = core_of(*reduced);
        return {shardkit::detail::sums_of(given, layer, where).data(), flat, Access::scale(given, state_.rank())};
    }

  private:
    GroupOf(std::shared_ptr<State> made, const Typed& typed)
        : Group(*made), made_(std::move(made)), state_(of_core), typed_(typed) {
        updated = state_.geometry().updated;
        sources = state_.geometry().sources();
        window_generation = &state_.parameters().generation();
        gradient_generation = &state_.gradient_generation();
    }

    std::shared_ptr<State> made_;
    State& state_;
    const Typed& typed_;
};

}  // namespace SHARDKIT_CHECKED_BUILD
