// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/expert_parallel.hpp>
#include <shardkit/rank/context.hpp>

#include "../model/block.hpp"
#include "../model/gelu.hpp"
#include "../model/host_place.hpp"
#include "../model/layer_norm.hpp"
#include "../model/linear.hpp"
#include "../model/parameters.hpp"
#include "../model/router.hpp"

namespace train_gpt {

/// A layer of experts behind a block: x + the weighted sum, over the chosen experts of each token, of
/// down(gelu(up(norm(x)))). The tokens go to the ranks of their experts and come back. What it keeps of a pass for
/// the backward pass is as large as that pass's tokens say.
template <class Engine, class T>
class ExpertLayer {
    using A = Arithmetic<T>;

  public:
    ExpertLayer(sk::Context<Engine>& context, const ModelConfig& config)
        : context_(&context),
          width_(config.width),
          hidden_(expert_width(config)),
          experts_(config.experts),
          top_(config.top),
          exchange_(context, sk::ep::ranks(context), config.experts),
          router_(config.experts, config.top),
          assignment_(config.experts, config.capacity),
          routes_(exchange_.route_all(0)) {}

    /// The bytes of what a layer keeps and works in, where each expert gets as many of so many tokens.
    static std::size_t expected_bytes(const ModelConfig& config, std::size_t tokens, std::size_t ep) {
        const std::size_t c = config.width, hidden = expert_width(config), rows = rows_of_experts(config, tokens);
        const std::size_t of_tokens = 4 * c + 2 + 3 * config.experts + 3 * config.top;
        return (tokens * of_tokens + rows * (4 * c + 3 * hidden) + levels(ep) * c * hidden) * sizeof(A);
    }

    /// x += what the experts make of it. Shapes: x [tokens, width]; weights of this rank's experts.
    template <class RouterWindow, class ExpertWindow>
    void forward(std::size_t tokens, const RouterWindow& router, const ExpertWindow& experts, A* x) {
        tokens_ = tokens;
        input_.assign(x, x + tokens * width_);
        mean_.resize(tokens);
        deviation_.resize(tokens);
        norm_.resize(tokens * width_);
        logits_.resize(tokens * experts_);
        layer_norm_forward<T>(tokens, width_, router[RouterNormWeight<T>{}].data(),
                              router[RouterNormBias<T>{}].data(), input_.data(), norm_.data(), mean_.data(),
                              deviation_.data());
        linear_forward<T>({tokens, width_, experts_}, router[RouterWeight<T>{}].data(), norm_.data(), logits_.data(),
                          converted(experts_ * width_));
        router_.choose(tokens, logits_);
        assignment_.assign(router_.chosen());
        routes_ = assignment_.capacity() > 0 ? exchange_.route_all(assignment_.capacity())
                                             : exchange_.route(assignment_.rows());
        rows_.resize(routes_.rows_sent() * width_);
        received_.resize(routes_.rows_received() * width_);
        up_.resize(routes_.rows_received() * hidden_);
        gelu_.resize(up_.size());
        made_.resize(received_.size());
        back_.resize(rows_.size());
        sk::ep::write_rows(*context_, assignment_.choice_of(), top_, width_, view(norm_), {}, span(rows_));
        exchange_.dispatch(routes_, width_, view(rows_), span(received_));
        for_each_part([&](std::size_t expert, std::size_t row, std::size_t rows) {
            linear_forward<T>({rows, width_, hidden_}, up_of(experts, expert), received_.data() + row * width_,
                              up_.data() + row * hidden_, converted(hidden_ * width_));
            gelu_forward(rows * hidden_, up_.data() + row * hidden_, gelu_.data() + row * hidden_);
            linear_forward<T>({rows, hidden_, width_}, down_of(experts, expert), gelu_.data() + row * hidden_,
                              made_.data() + row * width_, converted(hidden_ * width_));
        });
        exchange_.combine(routes_, width_, view(made_), span(back_));
        out_.resize(tokens * width_);
        sk::ep::sum_rows(*context_, assignment_.row_of(), top_, width_, view(back_), view(router_.weights()),
                         span(out_));
        add_into(tokens * width_, out_.data(), x);
    }

    /// Turns the gradient at the output into that at the input. Gradients of parameters are added to: those of an
    /// expert in the order of the ranks whose tokens they are of, along a tree, so that slices have the same bits on
    /// any number of ranks. `auxiliary`: what the auxiliary loss is multiplied by.
    template <class RouterWindow, class ExpertWindow, class RouterGradients, class ExpertGradients>
    void backward(A auxiliary, const RouterWindow& router, const ExpertWindow& experts,
                  const RouterGradients& d_router, const ExpertGradients& d_experts, A* d_x) {
        const std::span<const A> d_out(d_x, tokens_ * width_);
        // Back the way that the outputs came.
        d_weights_.resize(tokens_ * top_);
        sk::ep::weight_gradients(*context_, assignment_.row_of(), top_, width_, view(back_), d_out, span(d_weights_));
        sk::ep::write_rows(*context_, assignment_.choice_of(), top_, width_, d_out, view(router_.weights()),
                           span(rows_));
        exchange_.dispatch(routes_, width_, view(rows_), span(made_));
        d_up_.resize(up_.size());
        for_each_part([&](std::size_t expert, std::size_t row, std::size_t rows) {
            A* const d = d_up_.data() + row * hidden_;
            input_gradient<T>({rows, hidden_, width_}, down_of(experts, expert), made_.data() + row * width_, d,
                              converted(hidden_ * width_));
            gelu_backward_in_place(rows * hidden_, up_.data() + row * hidden_, d);
        });
        for (std::size_t e = 0; e < routes_.experts(); ++e) {
            add_tree({width_, hidden_}, e, received_, d_up_, d_experts[ExpertUp<T>{}].data());
            add_tree({hidden_, width_}, e, gelu_, made_, d_experts[ExpertDown<T>{}].data());
        }
        for_each_part([&](std::size_t expert, std::size_t row, std::size_t rows) {
            input_gradient<T>({rows, width_, hidden_}, up_of(experts, expert), d_up_.data() + row * hidden_,
                              received_.data() + row * width_, converted(hidden_ * width_));
        });
        exchange_.combine(routes_, width_, view(received_), span(back_));
        d_norm_.resize(tokens_ * width_);
        sk::ep::sum_rows(*context_, assignment_.row_of(), top_, width_, view(back_), {}, span(d_norm_));
        // The router.
        router_.backward(d_weights_, auxiliary, d_logits_);
        out_.resize(tokens_ * width_);
        input_gradient<T>({tokens_, width_, experts_}, router[RouterWeight<T>{}].data(), d_logits_.data(),
                          out_.data(), converted(experts_ * width_));
        add_into(tokens_ * width_, out_.data(), d_norm_.data());
        weight_gradient<T>({tokens_, width_, experts_}, norm_.data(), d_logits_.data(),
                           d_router[RouterWeight<T>{}].data(), Into::add, converted(experts_ * width_));
        sums_.resize(2 * width_);
        layer_norm_backward<T>(tokens_, width_, router[RouterNormWeight<T>{}].data(), input_.data(), mean_.data(),
                               deviation_.data(), d_norm_.data(), d_x, d_router[RouterNormWeight<T>{}].data(),
                               d_router[RouterNormBias<T>{}].data(), sums_.data());
    }

    const Router<A>& router() const noexcept { return router_; }

  private:
    struct Product {
        std::size_t inputs;
        std::size_t outputs;
    };

    /// The sums that a tree over so many ranks holds at a time.
    static std::size_t levels(std::size_t ranks) noexcept {
        std::size_t levels = 1;
        for (; ranks > 1; ranks = (ranks + 1) / 2) { ++levels; }
        return levels;
    }
    static std::span<const A> view(const std::vector<A>& values) noexcept { return values; }
    static std::span<A> span(std::vector<A>& values) noexcept { return values; }
    A* converted(std::size_t elements) {
        if (needs_conversion<T> && converted_.size() < elements) { converted_.resize(elements); }
        return converted_.data();
    }
    const T* up_of(const auto& experts, std::size_t expert) const {
        return experts[ExpertUp<T>{}].data() + expert * hidden_ * width_;
    }
    const T* down_of(const auto& experts, std::size_t expert) const {
        return experts[ExpertDown<T>{}].data() + expert * hidden_ * width_;
    }
    /// f(expert, first row, rows) for what each rank has sent to each expert.
    template <class F>
    void for_each_part(const F& f) const {
        for (std::size_t source = 0; source < routes_.sources(); ++source) {
            for (std::size_t e = 0; e < routes_.experts(); ++e) {
                const sk::IndexRange range = routes_.received(e, source);
                if (!range.empty()) { f(e, range.begin, range.size()); }
            }
        }
    }
    /// d += the gradient of an expert's matrix, of the rows of all ranks.
    void add_tree(Product product, std::size_t expert, const std::vector<A>& x, const std::vector<A>& dy, T* d) {
        const std::size_t numel = product.inputs * product.outputs;
        tree_.resize(levels(routes_.sources()) * numel);
        tree(product, expert, x, dy, 0, routes_.sources(), tree_.data());
        add_rounded(d + expert * numel, tree_.data(), numel);
    }
    void tree(Product product, std::size_t expert, const std::vector<A>& x, const std::vector<A>& dy,
              std::size_t first, std::size_t count, A* to) {
        const std::size_t numel = product.inputs * product.outputs;
        if (count > 1) {
            const std::size_t half = (count + 1) / 2;
            tree(product, expert, x, dy, first, half, to);
            tree(product, expert, x, dy, first + half, count - half, to + numel);
            add_into(numel, to + numel, to);
            return;
        }
        const sk::IndexRange range = routes_.received(expert, first);
        if (range.empty()) {
            std::fill_n(to, numel, A{0});
        } else {
            weight_gradient<A>({range.size(), product.inputs, product.outputs},
                               x.data() + range.begin * product.inputs, dy.data() + range.begin * product.outputs, to,
                               Into::overwrite, static_cast<A*>(nullptr));
        }
    }

    sk::Context<Engine>* context_;
    std::size_t width_, hidden_, experts_, top_;
    sk::ep::TokenExchange<Engine> exchange_;
    Router<A> router_;
    sk::ep::Assignment assignment_;
    sk::ep::Routes routes_;
    std::size_t tokens_ = 0;
    std::vector<A> input_, norm_, mean_, deviation_, logits_;  // kept of the forward pass
    std::vector<A> rows_, received_, up_, gelu_, made_, back_;
    std::vector<A> out_, d_weights_, d_up_, d_norm_, d_logits_, sums_, tree_, converted_;
};

}  // namespace train_gpt
