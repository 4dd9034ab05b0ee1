// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/expert_parallel.hpp>
#include <shardkit/rank/context.hpp>

#include "../model/arena.hpp"
#include "../model/block.hpp"
#include "../model/gelu.hpp"
#include "../model/host_place.hpp"
#include "../model/layer_norm.hpp"
#include "../model/linear.hpp"
#include "../model/parameters.hpp"
#include "../model/router.hpp"
#include "../model/split.hpp"

namespace train_gpt {

/// The extents of a rank's layers of experts, for passes of at most `tokens`.
struct ExpertExtents {
    std::size_t tokens, width, hidden, experts, top;
    std::size_t sent;      // most rows of this rank
    std::size_t received;  // most rows that it gets: without a capacity all that the ranks which share experts have
    std::size_t levels;    // sums that a tree over these ranks holds at a time

    static ExpertExtents of(const ModelConfig& config, const Split& split, std::size_t tokens, std::size_t ep) {
        const std::size_t own = config.experts / ep;
        std::size_t levels = 1;
        for (std::size_t ranks = ep; ranks > 1; ranks = (ranks + 1) / 2) { ++levels; }
        return {tokens,
                config.width,
                expert_width(config) / split.tp,
                config.experts,
                config.top,
                rows_of_experts(config, tokens),
                config.capacity > 0 ? config.experts * config.capacity : ep * tokens * std::min(config.top, own),
                levels};
    }
};

/// What a layer keeps of a pass for the backward pass.
template <class A>
struct ExpertActivations {
    A *input, *norm, *mean, *deviation, *received, *up, *gelu, *back;

    static ExpertActivations take(Arena& arena, const ExpertExtents& x) {
        const auto numbers = [&](std::size_t count) { return arena.take<A>(count); };
        return {numbers(x.tokens * x.width),
                numbers(x.tokens * x.width),
                numbers(x.tokens),
                numbers(x.tokens),
                numbers(x.received * x.width),
                numbers(x.received * x.hidden),
                numbers(x.received * x.hidden),
                numbers(x.sent * x.width)};
    }
};
/// What all layers work in. `converted`: a matrix, where parameters must be converted.
template <class A>
struct ExpertScratch {
    A *rows, *made, *out, *d_norm, *logits, *d_logits, *d_weights, *d_up, *sums, *tree, *converted;

    static ExpertScratch take(Arena& arena, const ExpertExtents& x, bool converts) {
        const auto numbers = [&](std::size_t count) { return arena.take<A>(count); };
        return {numbers(x.sent * x.width),
                numbers(x.received * x.width),
                numbers(x.tokens * x.width),
                numbers(x.tokens * x.width),
                numbers(x.tokens * x.experts),
                numbers(x.tokens * x.experts),
                numbers(x.tokens * x.top),
                numbers(x.received * x.hidden),
                numbers(2 * x.width),
                numbers(x.levels * x.width * x.hidden),
                numbers(converts ? std::max(x.experts, x.hidden) * x.width : 0)};
    }
};

/// The layers of experts behind the blocks: x + the weighted sum, over the chosen experts of each token, of
/// down(gelu(up(norm(x)))). The tokens go to the ranks of their experts and come back; tp cuts each expert, whose
/// outputs are summed. Memory is laid out once, for passes of at most so many tokens.
template <class Engine, class T>
class ExpertLayers {
    using A = Arithmetic<T>;

  public:
    /// Bytes that the layers of a rank take, exactly, but for some hundred of their routes.
    static std::size_t bytes(const ModelConfig& config, const Split& split, std::size_t tokens, std::size_t ep) {
        const auto x = ExpertExtents::of(config, split, tokens, ep);
        const std::size_t choices = x.tokens * x.top;
        return arena_bytes(config, x) + config.layers * (Router<A>::bytes(x.experts, x.top, x.tokens) +
                                                         (choices + x.sent) * sizeof(std::uint32_t));
    }

    /// Collective over the mesh.
    ExpertLayers(sk::Context<Engine>& context, const ModelConfig& config, const Split& split, std::size_t tokens)
        : context_(&context),
          tp_(context.template sub_mesh<sk::Axes<sk::Tp>>()),
          exchange_(context, sk::ep::ranks(context), config.experts),
          x_(ExpertExtents::of(config, split, tokens, exchange_.ranks().size())),
          memory_(context.template buffer<std::uint8_t>(arena_bytes(config, x_))) {
        Arena arena(reinterpret_cast<std::byte*>(memory_.data()), memory_.size());
        scratch_ = ExpertScratch<A>::take(arena, x_, needs_conversion<T>);
        layers_.reserve(config.layers);
        for (std::size_t l = 0; l < config.layers; ++l) {
            layers_.push_back({ExpertActivations<A>::take(arena, x_), Router<A>(x_.experts, x_.top, tokens),
                               sk::ep::Assignment(x_.experts, config.capacity), exchange_.route_all(0)});
        }
    }

    /// x += what the experts make of it. Shapes: x [tokens, width]; weights of this rank's experts.
    template <class RouterWindow, class ExpertWindow>
    void forward(std::size_t layer, std::size_t tokens, const RouterWindow& router, const ExpertWindow& experts,
                 A* x) {
        Layer& l = layers_[layer];
        const auto& kept = l.kept;
        tokens_ = tokens;
        std::copy_n(x, tokens * x_.width, kept.input);
        layer_norm_forward<T>(tokens, x_.width, router[RouterNormWeight<T>{}].data(),
                              router[RouterNormBias<T>{}].data(), kept.input, kept.norm, kept.mean, kept.deviation);
        linear_forward<T>({tokens, x_.width, x_.experts}, router[RouterWeight<T>{}].data(), kept.norm,
                          scratch_.logits, scratch_.converted);
        l.router.choose(tokens, scratch_.logits);
        l.assignment.assign(l.router.chosen());
        l.routes = l.assignment.capacity() > 0 ? exchange_.route_all(l.assignment.capacity())
                                               : exchange_.route(l.assignment.rows());
        const auto rows = sent(l, scratch_.rows), received = this->received(l, kept.received);
        sk::ep::write_rows(*context_, l.assignment.choice_of(), x_.top, x_.width, view(tokens_of(kept.norm)), {},
                           rows);
        exchange_.dispatch(l.routes, x_.width, view(rows), received);
        for_each_part(l.routes, [&](std::size_t expert, std::size_t row, std::size_t count) {
            A* const up = kept.up + row * x_.hidden;
            A* const gelu = kept.gelu + row * x_.hidden;
            linear_forward<T>({count, x_.width, x_.hidden}, up_of(experts, expert), kept.received + row * x_.width,
                              up, scratch_.converted);
            gelu_forward(count * x_.hidden, up, gelu);
            linear_forward<T>({count, x_.hidden, x_.width}, down_of(experts, expert), gelu,
                              scratch_.made + row * x_.width, scratch_.converted);
        });
        exchange_.combine(l.routes, x_.width, view(this->received(l, scratch_.made)), sent(l, kept.back));
        const auto out = tokens_of(scratch_.out);
        sk::ep::sum_rows(*context_, l.assignment.row_of(), x_.top, x_.width, view(sent(l, kept.back)),
                         std::span<const A>(l.router.weights()), out);
        sum_over_tp(out);
        add_into(out.size(), out.data(), x);
    }

    /// Turns the gradient at the output into that at the input. Gradients of parameters are added to: those of an
    /// expert in the order of the ranks whose tokens they are of, along a tree, so that slices have the same bits on
    /// any number of ranks. `auxiliary`: what the auxiliary loss is multiplied by.
    template <class RouterWindow, class ExpertWindow, class RouterGradients, class ExpertGradients>
    void backward(std::size_t layer, A auxiliary, const RouterWindow& router, const ExpertWindow& experts,
                  const RouterGradients& d_router, const ExpertGradients& d_experts, A* d_x) {
        Layer& l = layers_[layer];
        const auto& kept = l.kept;
        const auto d_out = view(tokens_of(d_x));
        // Back the way that the outputs came.
        const std::span<A> d_weights(scratch_.d_weights, tokens_ * x_.top);
        sk::ep::weight_gradients(*context_, l.assignment.row_of(), x_.top, x_.width, view(sent(l, kept.back)), d_out,
                                 d_weights);
        sum_over_tp(d_weights);
        const auto rows = sent(l, scratch_.rows);
        sk::ep::write_rows(*context_, l.assignment.choice_of(), x_.top, x_.width, d_out,
                           std::span<const A>(l.router.weights()), rows);
        exchange_.dispatch(l.routes, x_.width, view(rows), received(l, scratch_.made));
        for_each_part(l.routes, [&](std::size_t expert, std::size_t row, std::size_t count) {
            A* const d = scratch_.d_up + row * x_.hidden;
            input_gradient<T>({count, x_.hidden, x_.width}, down_of(experts, expert), scratch_.made + row * x_.width,
                              d, scratch_.converted);
            gelu_backward_in_place(count * x_.hidden, kept.up + row * x_.hidden, d);
        });
        for (std::size_t e = 0; e < l.routes.experts(); ++e) {
            add_tree(l.routes, {x_.width, x_.hidden}, e, kept.received, scratch_.d_up, d_experts, ExpertUp<T>{});
            add_tree(l.routes, {x_.hidden, x_.width}, e, kept.gelu, scratch_.made, d_experts, ExpertDown<T>{});
        }
        for_each_part(l.routes, [&](std::size_t expert, std::size_t row, std::size_t count) {
            input_gradient<T>({count, x_.width, x_.hidden}, up_of(experts, expert), scratch_.d_up + row * x_.hidden,
                              kept.received + row * x_.width, scratch_.converted);
        });
        exchange_.combine(l.routes, x_.width, view(received(l, kept.received)), sent(l, kept.back));
        const auto d_norm = tokens_of(scratch_.d_norm);
        sk::ep::sum_rows(*context_, l.assignment.row_of(), x_.top, x_.width, view(sent(l, kept.back)), {}, d_norm);
        sum_over_tp(d_norm);
        // The router, which each rank of tp has whole.
        const LinearShape of_router{tokens_, x_.width, x_.experts};
        l.router.backward(d_weights.data(), auxiliary, scratch_.d_logits);
        input_gradient<T>(of_router, router[RouterWeight<T>{}].data(), scratch_.d_logits, scratch_.out,
                          scratch_.converted);
        add_into(d_norm.size(), scratch_.out, d_norm.data());
        weight_gradient<T>(of_router, kept.norm, scratch_.d_logits, d_router[RouterWeight<T>{}].data(), Into::add,
                           scratch_.converted);
        layer_norm_backward<T>(tokens_, x_.width, router[RouterNormWeight<T>{}].data(), kept.input, kept.mean,
                               kept.deviation, d_norm.data(), d_x, d_router[RouterNormWeight<T>{}].data(),
                               d_router[RouterNormBias<T>{}].data(), scratch_.sums);
    }

    const Router<A>& router(std::size_t layer) const noexcept { return layers_[layer].router; }

  private:
    struct Layer {
        ExpertActivations<A> kept;
        Router<A> router;
        sk::ep::Assignment assignment;
        sk::ep::Routes routes;
    };
    struct Product {
        std::size_t inputs;
        std::size_t outputs;
    };

    static std::size_t arena_bytes(const ModelConfig& config, const ExpertExtents& x) {
        Arena counter;
        ExpertScratch<A>::take(counter, x, needs_conversion<T>);
        for (std::size_t l = 0; l < config.layers; ++l) { ExpertActivations<A>::take(counter, x); }
        return counter.used();
    }
    static std::span<const A> view(std::span<A> values) noexcept { return values; }
    std::span<A> tokens_of(A* values) const noexcept { return {values, tokens_ * x_.width}; }
    std::span<A> sent(const Layer& l, A* rows) const noexcept { return {rows, l.routes.rows_sent() * x_.width}; }
    std::span<A> received(const Layer& l, A* rows) const noexcept {
        return {rows, l.routes.rows_received() * x_.width};
    }
    void sum_over_tp(std::span<A> values) const {
        if (tp_.size() > 1) { sk::all_reduce_in_place(tp_, sk::ReduceOp::sum, values, context_->compute_stream()); }
    }
    const T* up_of(const auto& experts, std::size_t expert) const {
        return experts[ExpertUp<T>{}].data() + expert * x_.hidden * x_.width;
    }
    const T* down_of(const auto& experts, std::size_t expert) const {
        return experts[ExpertDown<T>{}].data() + expert * x_.hidden * x_.width;
    }
    /// f(expert, first row, rows) for what each rank has sent to each expert.
    template <class F>
    static void for_each_part(const sk::ep::Routes& routes, const F& f) {
        for (std::size_t source = 0; source < routes.sources(); ++source) {
            for (std::size_t e = 0; e < routes.experts(); ++e) {
                const sk::IndexRange range = routes.received(e, source);
                if (!range.empty()) { f(e, range.begin, range.size()); }
            }
        }
    }
    /// Adds the gradient of an expert's matrix, of the rows of all ranks, or of each where gradients are kept apart.
    template <class Gradients, class P>
    void add_tree(const sk::ep::Routes& routes, Product product, std::size_t expert, const A* x, const A* dy,
                  const Gradients& d, P parameter) const {
        const std::size_t numel = product.inputs * product.outputs;
        const std::size_t together = routes.sources() / d.sources();
        for (std::size_t source = 0; source < d.sources(); ++source) {
            tree(routes, product, expert, x, dy, source * together, together, scratch_.tree);
            add_rounded(d.of_source(source, parameter).data() + expert * numel, scratch_.tree, numel);
        }
    }
    static void tree(const sk::ep::Routes& routes, Product product, std::size_t expert, const A* x, const A* dy,
                     std::size_t first, std::size_t count, A* to) {
        const std::size_t numel = product.inputs * product.outputs;
        if (count > 1) {
            const std::size_t half = (count + 1) / 2;
            tree(routes, product, expert, x, dy, first, half, to);
            tree(routes, product, expert, x, dy, first + half, count - half, to + numel);
            add_into(numel, to + numel, to);
            return;
        }
        const sk::IndexRange range = routes.received(expert, first);
        if (range.empty()) {
            std::fill_n(to, numel, A{0});
        } else {
            weight_gradient<A>({range.size(), product.inputs, product.outputs}, x + range.begin * product.inputs,
                               dy + range.begin * product.outputs, to, Into::overwrite, static_cast<A*>(nullptr));
        }
    }

    sk::Context<Engine>* context_;
    typename Engine::Communicator tp_;
    sk::ep::TokenExchange<Engine> exchange_;
    ExpertExtents x_;
    typename Engine::template Buffer<std::uint8_t> memory_;
    ExpertScratch<A> scratch_{};
    std::vector<Layer> layers_;
    std::size_t tokens_ = 0;
};

}  // namespace train_gpt
