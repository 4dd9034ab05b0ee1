// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/expert_parallel.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_reduce.hpp>

#include "../model/arena.hpp"
#include "../model/convert.hpp"
#include "../model/gelu.hpp"
#include "../model/layer_norm.hpp"
#include "../model/linear.hpp"
#include "../model/matrix.hpp"
#include "../model/parameters.hpp"
#include "../model/place.hpp"
#include "../model/router.hpp"
#include "../model/split.hpp"

namespace train_gpt {

/// The extents of a rank's layers of experts, for passes of at most `tokens`.
struct ExpertExtents {
    std::size_t tokens, width, hidden, experts, top, tp;
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
                split.tp,
                rows_of_experts(config, tokens),
                config.capacity > 0 ? config.experts * config.capacity : ep * tokens * std::min(config.top, own),
                levels};
    }
};

/// What a layer keeps of a pass for the backward pass.
template <class S, class A = Arithmetic<S>>
struct ExpertActivations {
    S* input;
    Normed<S> norm;
    Choices<A> choices;
    S *received, *up, *gelu, *back;

    static ExpertActivations take(Arena& arena, const ExpertExtents& x) {
        return {arena.take<S>(x.tokens * x.width),
                Normed<S>::take(arena, x.tokens, x.width),
                Choices<A>::take(arena, x.tokens, x.experts, x.top, x.sent),
                arena.take<S>(x.received * x.width),
                arena.take<S>(x.received * x.hidden),
                arena.take<S>(x.received * x.hidden),
                arena.take<S>(x.sent * x.width)};
    }
};
/// What all layers work in. `summed`: where sums over tp are wider than what is stored; `converted`: a matrix, where
/// parameters must be converted.
template <class T, class Place>
struct ExpertScratch {
    using S = typename Place::template Storage<T>;
    using A = Arithmetic<S>;

    S *rows, *made, *out, *d_norm, *d_logits, *d_up;
    A *logits, *d_weights, *sums, *tree, *summed, *converted;
    std::uint64_t* counts;

    static ExpertScratch take(Arena& arena, const ExpertExtents& x) {
        const bool rounded = x.tp > 1 && !std::same_as<S, A>;
        return {arena.take<S>(x.sent * x.width),
                arena.take<S>(x.received * x.width),
                arena.take<S>(x.tokens * x.width),
                arena.take<S>(x.tokens * x.width),
                arena.take<S>(x.tokens * x.experts),
                arena.take<S>(x.received * x.hidden),
                arena.take<A>(x.tokens * x.experts),
                arena.take<A>(x.tokens * x.top),
                arena.take<A>(Place::column_parts * 2 * x.width),
                arena.take<A>(x.levels * x.width * x.hidden),
                arena.take<A>(rounded ? x.tokens * x.width : 0),
                arena.take<A>(needs_conversion<T> ? std::max(x.experts, x.hidden) * x.width : 0),
                arena.take<std::uint64_t>(Place::column_parts * x.experts)};
    }
};

/// The layers of experts behind the blocks: x + the weighted sum, over the chosen experts of each token, of
/// down(gelu(up(norm(x)))). The tokens go to the ranks of their experts and come back; tp cuts each expert, whose
/// outputs are summed. Memory is laid out once, for passes of at most so many tokens. Without a capacity the host
/// waits in each forward pass for how many rows it gets; with one no pass waits, so that it can be captured.
template <class T, class Place = HostPlace>
class ExpertLayers {
    using S = typename Place::template Storage<T>;
    using A = Arithmetic<S>;

  public:
    /// Bytes that the layers of a rank take, exactly, but for the routes, which are the host's.
    static std::size_t bytes(const ModelConfig& config, const Split& split, std::size_t tokens, std::size_t ep,
                             const sk::engine::Traits& engine = {}) {
        return engine.buffer_bytes(arena_bytes(config, ExpertExtents::of(config, split, tokens, ep))) +
               sk::ep::TokenExchange::bytes(config.experts, engine);
    }

    /// Collective over the mesh.
    ExpertLayers(sk::Rank& rank, const ModelConfig& config, const Split& split, std::size_t tokens,
                 const Place& place = {})
        : rank_(&rank),
          place_(place),
          tp_(rank.template sub_mesh<sk::Axes<sk::Tp>>()),
          exchange_(rank, sk::ep::ranks(rank), config.experts),
          x_(ExpertExtents::of(config, split, tokens, exchange_.ranks().size())),
          capacity_(config.capacity),
          memory_(rank.template buffer<std::uint8_t>(arena_bytes(config, x_))) {
        Arena arena(reinterpret_cast<std::byte*>(memory_.data()), memory_.size());
        scratch_ = ExpertScratch<T, Place>::take(arena, x_);
        layers_.reserve(config.layers);
        for (std::size_t l = 0; l < config.layers; ++l) {
            layers_.push_back({ExpertActivations<S>::take(arena, x_), exchange_.route_all(capacity_)});
        }
    }

    /// x += what the experts make of it. Shapes: x [tokens, width]; weights of this rank's experts.
    template <class RouterWindow, class ExpertWindow>
    void forward(std::size_t layer, std::size_t tokens, const RouterWindow& router, const ExpertWindow& experts,
                 S* x) {
        Layer& l = layers_[layer];
        const auto& kept = l.kept;
        tokens_ = tokens;
        place_.each(tokens * x_.width, Convert<S, S>{x, kept.input});
        layer_norm_forward<T>(tokens, x_.width, router[RouterNormWeight<T>{}].data(),
                              router[RouterNormBias<T>{}].data(), kept.input, kept.norm, place_);
        linear_forward<T>({tokens, x_.width, x_.experts}, router[RouterWeight<T>{}].data(), kept.norm.out,
                          scratch_.logits, scratch_.converted, place_);
        choose_experts(tokens, x_.experts, x_.top, capacity_, scratch_.logits, kept.choices, scratch_.counts, place_);
        if (capacity_ == 0) {
            l.routes = exchange_.route_counted(std::span<const std::uint64_t>(kept.choices.counts, x_.experts));
        }
        const auto rows = sent(l, scratch_.rows), received = this->received(l, kept.received);
        sk::ep::write_rows(*rank_, choice_of(l), x_.top, x_.width, view(tokens_of(kept.norm.out)), {}, rows);
        exchange_.dispatch(l.routes, x_.width, view(rows), received);
        multiply_parts(l.routes, {x_.width, x_.hidden}, experts[ExpertUp<T>{}].data(), kept.received, kept.up);
        place_.each(l.routes.rows_received() * x_.hidden, Gelu<S>{kept.up, kept.gelu});
        multiply_parts(l.routes, {x_.hidden, x_.width}, experts[ExpertDown<T>{}].data(), kept.gelu, scratch_.made);
        exchange_.combine(l.routes, x_.width, view(this->received(l, scratch_.made)), sent(l, kept.back));
        const auto out = tokens_of(scratch_.out);
        sk::ep::sum_rows(*rank_, row_of(l), x_.top, x_.width, view(sent(l, kept.back)), weights(l), out);
        sum_over_tp(out);
        add_rounded(x, scratch_.out, out.size(), place_);
    }

    /// Turns the gradient at the output into that at the input. Gradients of parameters are added to: those of an
    /// expert in the order of the ranks whose tokens they are of, along a tree, so that slices have the same bits on
    /// any number of ranks. `auxiliary`: what the auxiliary loss is multiplied by.
    template <class RouterWindow, class ExpertWindow, class RouterGradients, class ExpertGradients>
    void backward(std::size_t layer, A auxiliary, const RouterWindow& router, const ExpertWindow& experts,
                  const RouterGradients& d_router, const ExpertGradients& d_experts, S* d_x) {
        Layer& l = layers_[layer];
        const auto& kept = l.kept;
        const auto d_out = view(tokens_of(d_x));
        // Back the way that the outputs came.
        const std::span<A> d_weights(scratch_.d_weights, tokens_ * x_.top);
        sk::ep::weight_gradients(*rank_, row_of(l), x_.top, x_.width, view(sent(l, kept.back)), d_out, d_weights);
        sum_over_tp(d_weights);
        const auto rows = sent(l, scratch_.rows);
        sk::ep::write_rows(*rank_, choice_of(l), x_.top, x_.width, d_out, weights(l), rows);
        exchange_.dispatch(l.routes, x_.width, view(rows), received(l, scratch_.made));
        input_gradients(l.routes, {x_.hidden, x_.width}, experts[ExpertDown<T>{}].data(), scratch_.made,
                        scratch_.d_up);
        place_.each(l.routes.rows_received() * x_.hidden, GeluBackward<S>{kept.up, scratch_.d_up});
        for (std::size_t e = 0; e < l.routes.experts(); ++e) {
            add_tree(l.routes, {x_.width, x_.hidden}, e, kept.received, scratch_.d_up, d_experts, ExpertUp<T>{});
            add_tree(l.routes, {x_.hidden, x_.width}, e, kept.gelu, scratch_.made, d_experts, ExpertDown<T>{});
        }
        input_gradients(l.routes, {x_.width, x_.hidden}, experts[ExpertUp<T>{}].data(), scratch_.d_up, kept.received);
        exchange_.combine(l.routes, x_.width, view(received(l, kept.received)), sent(l, kept.back));
        const auto d_norm = tokens_of(scratch_.d_norm);
        sk::ep::sum_rows(*rank_, row_of(l), x_.top, x_.width, view(sent(l, kept.back)), std::span<const A>(), d_norm);
        sum_over_tp(d_norm);
        // The router, which each rank of tp has whole.
        const LinearShape of_router{tokens_, x_.width, x_.experts};
        place_.rows(tokens_, RouterBackward<S>{tokens_, x_.experts, x_.top, kept.choices, scratch_.d_weights,
                                               auxiliary, scratch_.d_logits});
        input_gradient<T>(of_router, router[RouterWeight<T>{}].data(), scratch_.d_logits, scratch_.out,
                          scratch_.converted, place_);
        add_rounded(scratch_.d_norm, scratch_.out, d_norm.size(), place_);
        weight_gradient<T>(of_router, kept.norm.out, scratch_.d_logits, d_router[RouterWeight<T>{}].data(), Into::add,
                           scratch_.converted, place_);
        layer_norm_backward<T>(tokens_, x_.width, router[RouterNormWeight<T>{}].data(), kept.input, kept.norm,
                               scratch_.d_norm, d_x, d_router[RouterNormWeight<T>{}].data(),
                               d_router[RouterNormBias<T>{}].data(), scratch_.sums, place_);
    }

    /// Of the last pass of a layer.
    const Choices<A>& choices(std::size_t layer) const noexcept { return layers_[layer].kept.choices; }

  private:
    struct Layer {
        ExpertActivations<S> kept;
        sk::ep::Routes routes;
    };
    struct Product {
        std::size_t inputs;
        std::size_t outputs;
    };

    static std::size_t arena_bytes(const ModelConfig& config, const ExpertExtents& x) {
        Arena counter;
        ExpertScratch<T, Place>::take(counter, x);
        for (std::size_t l = 0; l < config.layers; ++l) { ExpertActivations<S>::take(counter, x); }
        return counter.used();
    }
    static std::span<const S> view(std::span<S> values) noexcept { return values; }
    std::span<S> tokens_of(S* values) const noexcept { return {values, tokens_ * x_.width}; }
    std::span<S> sent(const Layer& l, S* rows) const noexcept { return {rows, l.routes.rows_sent() * x_.width}; }
    std::span<S> received(const Layer& l, S* rows) const noexcept {
        return {rows, l.routes.rows_received() * x_.width};
    }
    static std::span<const std::uint32_t> choice_of(const Layer& l) noexcept {
        return {l.kept.choices.choice_of, l.routes.rows_sent()};
    }
    std::span<const std::uint32_t> row_of(const Layer& l) const noexcept {
        return {l.kept.choices.row_of, tokens_ * x_.top};
    }
    std::span<const A> weights(const Layer& l) const noexcept { return {l.kept.choices.weights, tokens_ * x_.top}; }
    template <class X>
    void sum_over_tp(std::span<X> values) const {
        if (tp_.size() == 1) { return; }
        if constexpr (std::same_as<X, A>) {
            sk::all_reduce_in_place(tp_, sk::ReduceOp::sum, values, rank_->compute_stream());
        } else {
            place_.each(values.size(), Convert<X, A>{values.data(), scratch_.summed});
            sum_over_tp(std::span<A>(scratch_.summed, values.size()));
            place_.each(values.size(), Convert<A, X>{scratch_.summed, values.data()});
        }
    }
    /// y = x W^T, by the rows of each expert.
    void multiply_parts(const sk::ep::Routes& routes, Product product, const T* w, const S* x, S* y) const {
        for_each_part(routes, product, [&](const LinearShape& shape, std::size_t expert, std::size_t row) {
            linear_forward<T>(shape, w + expert * product.inputs * product.outputs, x + row * product.inputs,
                              y + row * product.outputs, scratch_.converted, place_);
        });
    }
    /// dx = dy W, likewise.
    void input_gradients(const sk::ep::Routes& routes, Product product, const T* w, const S* dy, S* dx) const {
        for_each_part(routes, product, [&](const LinearShape& shape, std::size_t expert, std::size_t row) {
            input_gradient<T>(shape, w + expert * product.inputs * product.outputs, dy + row * product.outputs,
                              dx + row * product.inputs, scratch_.converted, place_);
        });
    }
    /// f(shape, expert, first row) for what each rank has sent to each expert: one product each or, where all send as
    /// much and no weights are converted, those of all experts at once.
    template <class F>
    void for_each_part(const sk::ep::Routes& routes, Product product, const F& f) const {
        const std::size_t at_once = capacity_ > 0 && std::same_as<S, T> ? routes.experts() : 1;
        for (std::size_t source = 0; source < routes.sources(); ++source) {
            for (std::size_t e = 0; e < routes.experts(); e += at_once) {
                const sk::IndexRange range = routes.received(e, source);
                if (range.empty()) { continue; }
                f(LinearShape{range.size(), product.inputs, product.outputs, at_once}, e, range.begin);
            }
        }
    }
    /// Adds the gradient of an expert's matrix, of the rows of all ranks, or of each where gradients are kept apart.
    template <class Gradients, class P>
    void add_tree(const sk::ep::Routes& routes, Product product, std::size_t expert, const S* x, const S* dy,
                  const Gradients& d, P parameter) const {
        const std::size_t numel = product.inputs * product.outputs;
        const std::size_t together = routes.sources() / d.sources();
        for (std::size_t source = 0; source < d.sources(); ++source) {
            tree(routes, product, expert, x, dy, source * together, together, scratch_.tree);
            add_rounded(d.of_source(source, parameter).data() + expert * numel, scratch_.tree, numel, place_);
        }
    }
    void tree(const sk::ep::Routes& routes, Product product, std::size_t expert, const S* x, const S* dy,
              std::size_t first, std::size_t count, A* to) const {
        const std::size_t numel = product.inputs * product.outputs;
        if (count > 1) {
            const std::size_t half = (count + 1) / 2;
            tree(routes, product, expert, x, dy, first, half, to);
            tree(routes, product, expert, x, dy, first + half, count - half, to + numel);
            add_rounded(to, to + numel, numel, place_);
            return;
        }
        const sk::IndexRange range = routes.received(expert, first);
        if (range.empty()) {
            place_.each(numel, Fill<A>{to, A{0}});
        } else {
            place_.template multiply<S>(
                transposed(matrix(dy + range.begin * product.outputs, range.size(), product.outputs)),
                matrix(x + range.begin * product.inputs, range.size(), product.inputs),
                matrix(to, product.outputs, product.inputs), Into::overwrite);
        }
    }

    sk::Rank* rank_;
    Place place_;
    sk::Communicator tp_;
    sk::ep::TokenExchange exchange_;
    ExpertExtents x_;
    std::size_t capacity_;
    sk::HostBuffer<std::uint8_t> memory_;
    ExpertScratch<T, Place> scratch_{};
    std::vector<Layer> layers_;
    std::size_t tokens_ = 0;
};

}  // namespace train_gpt
