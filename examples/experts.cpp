// SPDX-License-Identifier: Apache-2.0
// Each token of this trainer uses two of four experts. It runs on four ranks twice: with all experts on each of
// them, and with one each.
// g++ -std=c++20 -Iinclude examples/experts.cpp -pthread -o example && ./example
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <shardkit/expert_parallel.hpp>
#include <shardkit/shardkit.hpp>
#include <span>
#include <vector>
namespace sk = shardkit;

// 4 experts, of which a token of 8 numbers uses 2: out = the sum of weight * W x over them.
constexpr std::size_t experts = 4, top = 2, width = 8, tokens = 32;
struct Router : sk::Param<"router", float, experts, width> {};
struct Weight : sk::Param<"weight", float, experts, width, width>, sk::ep::Split {};

float noise(std::size_t i) { return static_cast<float>((i * 2654435761U >> 7U) % 2001) / 1000 - 1; }
// out[o] += factor * the sum over i of w[o][i] * x[i], or of w[i][o] * x[i].
void product(const float* w, const float* x, float factor, std::size_t of_o, std::size_t of_i, float* out) {
    for (std::size_t o = 0; o < width; ++o) {
        for (std::size_t i = 0; i < width; ++i) { out[o] += factor * w[o * of_o + i * of_i] * x[i]; }
    }
}

template <class Mesh>
void train(const Mesh& mesh) {
    sk::threads::run(mesh, [](auto& rank) {
        sk::Sharded<Router, sk::NoShard> router{rank, "router"};
        sk::Sharded<Weight, sk::FullShard> layer{rank, "experts"};
        sk::Model model{router, layer};
        model.initialize([](auto, auto, auto i) { return noise(i) / 2; });
        sk::AdamW optimizer{model, {.learning_rate = 0.02}};
        sk::ep::TokenExchange exchange{rank, sk::ep::ranks(rank), experts};
        sk::ep::Assignment assignment(experts);
        std::vector<float> x(tokens * width), out(tokens * width), d_out(tokens * width), logits(tokens * experts);
        std::vector<std::uint32_t> chosen(tokens * top);
        std::vector<float> weights(tokens * top), d_weights(tokens * top);
        for (std::size_t i = 0; i < x.size(); ++i) { x[i] = noise(rank.rank() * x.size() + i); }

        for (int step = 0; step <= 200; ++step) {
            auto r = router.unshard();
            auto w = layer.unshard();
            for (std::size_t t = 0; t < tokens; ++t) {  // the router: the two largest logits, and their softmax
                for (std::size_t e = 0; e < experts; ++e) {
                    logits[t * experts + e] = 0;
                    for (std::size_t i = 0; i < width; ++i) {
                        logits[t * experts + e] += r[Router{}].data()[e * width + i] * x[t * width + i];
                    }
                }
                const float* of = &logits[t * experts];
                std::uint32_t best = 0, next = 1;
                for (std::uint32_t e = 1; e < experts; ++e) {
                    if (of[e] > of[best]) {
                        next = best, best = e;
                    } else if (e > 1 && of[e] > of[next]) {
                        next = e;
                    }
                }
                chosen[t * top] = best, chosen[t * top + 1] = next;
                weights[t * top] = 1 / (1 + std::exp(of[next] - of[best]));
                weights[t * top + 1] = 1 - weights[t * top];
            }
            assignment.assign(chosen);
            const auto routes = exchange.route(assignment.rows());
            std::vector<float> rows(routes.rows_sent() * width), back(rows.size());
            std::vector<float> in(routes.rows_received() * width), made(in.size());
            const std::span<const float> none{};
            sk::ep::write_rows(rank, assignment.choice_of(), top, width, std::span<const float>(x), none,
                               std::span(rows));
            exchange.dispatch(routes, width, std::span<const float>(rows), std::span(in));
            const auto each_row = [&](auto f) {  // f(expert, row) for this rank's experts, whoever sent the rows
                for (std::size_t e = 0; e < routes.experts(); ++e) {
                    for (std::size_t source = 0; source < routes.sources(); ++source) {
                        const sk::IndexRange part = routes.received(e, source);
                        for (std::size_t row = part.begin; row < part.end; ++row) {
                            f(e * width * width, row * width);
                        }
                    }
                }
            };
            each_row([&](auto e, auto row) { product(w[Weight{}].data() + e, &in[row], 1, width, 1, &made[row]); });
            exchange.combine(routes, width, std::span<const float>(made), std::span(back));
            sk::ep::sum_rows(rank, assignment.row_of(), top, width, std::span<const float>(back),
                             std::span<const float>(weights), std::span(out));
            double loss = 0;  // of a target that turns with the sign of the first number
            for (std::size_t i = 0; i < out.size(); ++i) {
                const std::size_t first = i / width * width;
                const float target = x[first] > 0 ? x[i] : x[first + width - 1 - i % width];
                d_out[i] = out[i] - target;
                loss += d_out[i] * d_out[i] / 2;
            }
            sk::ep::weight_gradients(rank, assignment.row_of(), top, width, std::span<const float>(back),
                                     std::span<const float>(d_out), std::span(d_weights));
            sk::ep::write_rows(rank, assignment.choice_of(), top, width, std::span<const float>(d_out),
                               std::span<const float>(weights), std::span(rows));
            exchange.dispatch(routes, width, std::span<const float>(rows),
                              std::span(made));  // combine's backward pass

            sk::Accumulation accumulation{model};
            auto d_layer = accumulation.gradients(layer);  // of the tokens of all ranks that share these experts
            each_row([&](auto e, auto row) {
                for (std::size_t i = 0; i < width * width; ++i) {
                    d_layer[Weight{}].data()[e + i] += made[row + i / width] * in[row + i % width];
                }
            });
            accumulation.add(std::move(d_layer));
            auto d_router = accumulation.gradients(router);
            for (std::size_t t = 0; t < tokens; ++t) {
                const float d =
                    weights[t * top] * weights[t * top + 1] * (d_weights[t * top] - d_weights[t * top + 1]);
                for (std::size_t i = 0; i < width; ++i) {
                    d_router[Router{}].data()[chosen[t * top] * width + i] += d * x[t * width + i];
                    d_router[Router{}].data()[chosen[t * top + 1] * width + i] -= d * x[t * width + i];
                }
            }
            accumulation.add(std::move(d_router));
            router.reshard(std::move(r));
            layer.reshard(std::move(w));
            const double tokens_of_all = static_cast<double>(tokens * rank.world_size());
            optimizer.step(std::move(accumulation), {.divisor = sk::divide_by(tokens_of_all)});
            loss = sk::all_reduce_value(rank, loss, sk::ReduceOp::sum) / tokens_of_all;
            if (rank.rank() == 0 && step % 100 == 0) { std::printf("step %3d: loss %.3f\n", step, loss); }
        }
    });
}

int main() {
    train(sk::ExpertMesh<sk::DeviceMesh<4>, 1>{});  // every rank has all experts
    train(sk::ExpertMesh<sk::DeviceMesh<4>, 4>{});  // one each
}
