// SPDX-License-Identifier: Apache-2.0
// adopted.cpp with a group for each block instead of the packed allocations, under a policy that a flag chooses.
// g++ -std=c++20 -Ofast -march=native -fopenmp -Iinclude examples/flat_trainer/after.cpp -o after
// ./after LICENSE 40 2 full_shard   -DWITH_MPI, mpicxx: mpirun -n 2 ./after LICENSE 40 mpi full_shard
#include <shardkit/shardkit.hpp>
#ifdef WITH_MPI
#include <shardkit/mpi.hpp>
#endif

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "layers.hpp"
#include "text.hpp"

namespace sk = shardkit;

constexpr int V = 256, T = 16, L = 3, NH = 4, C = 24;  // bytes, tokens of a row, layers, heads, channels
constexpr int ROWS = 6;                                // of a step's batch

constexpr int NUM_TENSORS = 16;
struct Tensors {
    real *wte, *wpe;                                        // (V, C), (T, C)
    real *ln1w, *ln1b, *qkvw, *qkvb, *attprojw, *attprojb;  // (L, C) twice, (L, 3C, C), (L, 3C), (L, C, C), (L, C)
    real *ln2w, *ln2b, *fcw, *fcb, *fcprojw, *fcprojb;      // (L, C) twice, (L, 4C, C), (L, 4C), (L, C, 4C), (L, C)
    real *lnfw, *lnfb;                                      // (C) twice
};
const size_t tensor_sizes[NUM_TENSORS] = {V * C,        T* C, L* C, L* C, L * 3 * C* C, L * 3 * C,
                                          L* C* C,      L* C, L* C, L* C, L * 4 * C* C, L * 4 * C,
                                          L* C * 4 * C, L* C, C,    C};
const char* const tensor_names[NUM_TENSORS] = {"wte",      "wpe",      "ln1w", "ln1b", "qkvw", "qkvb",
                                               "attprojw", "attprojb", "ln2w", "ln2b", "fcw",  "fcb",
                                               "fcprojw",  "fcprojb",  "lnfw", "lnfb"};

size_t num_parameters() {
    size_t sum = 0;
    for (int i = 0; i < NUM_TENSORS; ++i) { sum += tensor_sizes[i]; }
    return sum;
}
// Tensors [first, last) of the sixteen, of which a block has a layer's slice: one group.
using Group = sk::Sharded<sk::TensorList<real>, sk::DynamicPolicy>;
sk::TensorList<real> list_of(int first, int last, int layers) {
    std::vector<sk::NamedTensor> list;
    for (int i = first; i < last; ++i) { list.push_back({tensor_names[i], {tensor_sizes[i] / layers}}); }
    return sk::TensorList<real>(list);
}
// Points to the tensors of an open window, or of gradients, of a group that begins with tensor `first`.
template <class WindowOrGradients>
Tensors point_to(const WindowOrGradients& open, const Group& group, int first) {
    real* each[NUM_TENSORS] = {};
    for (size_t i = 0; i < group.parameters().size(); ++i) { each[first + i] = open.view(i).const_cast_data(); }
    Tensors tensors;
    std::memcpy(&tensors, each, sizeof tensors);
    return tensors;
}

// Normal by the sum of uniform ones; norms' weights are one.
void initialize(real* memory) {
    unsigned long long state = 1337;
    for (int i = 0; i < NUM_TENSORS; ++i) {
        const bool norm = i == 2 || i == 8 || i == 14;
        for (size_t j = 0; j < tensor_sizes[i]; ++j) {
            double sum = -2;
            for (int n = 0; n < 4; ++n) {
                state = state * 6364136223846793005ULL + 1442695040888963407ULL;
                sum += static_cast<double>(state >> 40) / (1 << 24);
            }
            *memory++ = norm ? real(1) : real(0.05 * sum);
        }
    }
}

constexpr int NUM_ACTIVATIONS = 20;
struct Activations {
    real* encoded;                                                        // (B, T, C)
    real *ln1, *ln1_mean, *ln1_rstd, *qkv, *atty, *att, *attproj, *res2;  // (L, B, T, ...)
    real *ln2, *ln2_mean, *ln2_rstd, *fch, *gelu, *fcproj, *res3;
    real *lnf, *lnf_mean, *lnf_rstd, *logits;
};

struct Model {
    int B;
    Group embedding;  // wte, wpe
    Group last;       // lnfw, lnfb
    std::vector<Group> blocks;
    Model(int b, Group e, Group l) : B(b), embedding(std::move(e)), last(std::move(l)) {}
    size_t act_sizes[NUM_ACTIVATIONS];
    size_t num_acts;
    real *acts_memory, *dacts_memory, *dscore;
    Activations acts, dacts;
    int *inputs, *targets;
    real loss;
};

real* zeros(size_t n) { return static_cast<real*>(std::calloc(n, sizeof(real))); }

void point_to_activations(Activations* acts, real* memory, const size_t* sizes) {
    real* each[NUM_ACTIVATIONS];
    for (int i = 0; i < NUM_ACTIVATIONS; ++i) {
        each[i] = memory;
        memory += sizes[i];
    }
    std::memcpy(acts, each, sizeof *acts);
}

// Gives a group its tensors' values: of the layer's slice of them.
void load(Group& group, const real* memory, int first, int layers, int l) {
    for (int i = 0; i < NUM_TENSORS; ++i) {
        const size_t n = tensor_sizes[i] / layers;
        const size_t number = static_cast<size_t>(i - first);
        if (i >= first && number < group.parameters().size()) { group.load(number, std::span(memory + n * l, n)); }
        memory += tensor_sizes[i];
    }
}

template <class Rank>
auto model_build(Rank& rank, const sk::DynamicPolicy& policy, int B) {
    using G = Group;
    Model built(B, G(rank, "embedding", list_of(0, 2, 1), {policy}), G(rank, "last", list_of(14, 16, 1), {policy}));
    auto* const model = &built;
    real* values = zeros(num_parameters());
    initialize(values);
    load(model->embedding, values, 0, 1, 0);
    load(model->last, values, 14, 1, 0);
    for (int l = 0; l < L; ++l) {
        model->blocks.emplace_back(rank, "blocks." + std::to_string(l), list_of(2, 14, L),
                                   typename G::Options{policy});
        load(model->blocks.back(), values, 2, L, l);
    }
    std::free(values);

    const size_t BT = static_cast<size_t>(B) * T;
    const size_t sizes[NUM_ACTIVATIONS] = {
        BT * C,     L * BT * C, L * BT, L * BT, L * BT * 3 * C, L * BT * C,     L * BT * NH * T, L * BT * C,
        L * BT * C, L * BT * C, L * BT, L * BT, L * BT * 4 * C, L * BT * 4 * C, L * BT * C,      L * BT * C,
        BT * C,     BT,         BT,     BT * V};
    std::memcpy(model->act_sizes, sizes, sizeof sizes);
    model->num_acts = 0;
    for (size_t size : sizes) { model->num_acts += size; }
    model->acts_memory = zeros(model->num_acts);
    model->dacts_memory = zeros(model->num_acts);
    point_to_activations(&model->acts, model->acts_memory, sizes);
    point_to_activations(&model->dacts, model->dacts_memory, sizes);
    model->dscore = zeros(static_cast<size_t>(B) * NH * T);
    model->inputs = static_cast<int*>(std::malloc(BT * sizeof(int)));
    model->targets = static_cast<int*>(std::malloc(BT * sizeof(int)));
    return built;
}

// Of `all` tokens of a step, this model has B * T.
void model_forward(Model* model, int all) {
    const int B = model->B;
    const int BT = B * T;
    const Activations a = model->acts;
    {
        const auto window = model->embedding.unshard();
        const Tensors w = point_to(window, model->embedding, 0);
        encoder_forward(a.encoded, model->inputs, w.wte, w.wpe, B, T, C);
    }
    for (int l = 0; l < L; ++l) {
        const auto window = model->blocks[l].unshard();
        const Tensors w = point_to(window, model->blocks[l], 2);
        const real* residual = l == 0 ? a.encoded : a.res3 + (l - 1) * BT * C;
        real* ln1 = a.ln1 + l * BT * C;
        real* qkv = a.qkv + l * BT * 3 * C;
        real* atty = a.atty + l * BT * C;
        real* attproj = a.attproj + l * BT * C;
        real* res2 = a.res2 + l * BT * C;
        real* ln2 = a.ln2 + l * BT * C;
        real* fch = a.fch + l * BT * 4 * C;
        real* gelu = a.gelu + l * BT * 4 * C;
        real* fcproj = a.fcproj + l * BT * C;
        real* res3 = a.res3 + l * BT * C;
        layernorm_forward(ln1, a.ln1_mean + l * BT, a.ln1_rstd + l * BT, residual, w.ln1w, w.ln1b, BT, C);
        matmul_forward(qkv, ln1, w.qkvw, w.qkvb, BT, C, 3 * C);
        attention_forward(atty, a.att + l * B * NH * T * T, qkv, B, T, C, NH);
        matmul_forward(attproj, atty, w.attprojw, w.attprojb, BT, C, C);
        for (int i = 0; i < BT * C; ++i) { res2[i] = residual[i] + attproj[i]; }
        layernorm_forward(ln2, a.ln2_mean + l * BT, a.ln2_rstd + l * BT, res2, w.ln2w, w.ln2b, BT, C);
        matmul_forward(fch, ln2, w.fcw, w.fcb, BT, C, 4 * C);
        gelu_forward(gelu, fch, BT * 4 * C);
        matmul_forward(fcproj, gelu, w.fcprojw, w.fcprojb, BT, 4 * C, C);
        for (int i = 0; i < BT * C; ++i) { res3[i] = res2[i] + fcproj[i]; }
    }
    const real* last = a.res3 + (L - 1) * BT * C;
    const auto window = model->last.unshard();
    const auto embedding = model->embedding.unshard();
    const Tensors w = point_to(window, model->last, 14);
    layernorm_forward(a.lnf, a.lnf_mean, a.lnf_rstd, last, w.lnfw, w.lnfb, BT, C);
    matmul_forward(a.logits, a.lnf, point_to(embedding, model->embedding, 0).wte, nullptr, BT, C, V);
    std::memcpy(model->dacts.logits, a.logits, sizeof(real) * BT * V);
    model->loss = crossentropy(model->dacts.logits, model->targets, BT, V, all);
}

void model_backward(Model* model, sk::Accumulation* accumulation) {
    const int B = model->B;
    const int BT = B * T;
    const Activations a = model->acts;
    const Activations d = model->dacts;
    std::memset(model->dacts_memory, 0, sizeof(real) * (model->num_acts - BT * V));  // but the logits'
    real* dlast = d.res3 + (L - 1) * BT * C;
    auto embedding_gradients = accumulation->gradients(model->embedding);
    const Tensors embedding_g = point_to(embedding_gradients, model->embedding, 0);
    {
        const auto embedding = model->embedding.unshard();
        const real* wte = point_to(embedding, model->embedding, 0).wte;
        matmul_backward(d.lnf, embedding_g.wte, nullptr, d.logits, a.lnf, wte, BT, C, V);
    }
    {
        const auto window = model->last.unshard();
        auto gradients = accumulation->gradients(model->last);
        const Tensors g = point_to(gradients, model->last, 14);
        layernorm_backward(dlast, g.lnfw, g.lnfb, d.lnf, a.res3 + (L - 1) * BT * C,
                           point_to(window, model->last, 14).lnfw, a.lnf_mean, a.lnf_rstd, BT, C);
        accumulation->add(std::move(gradients));
    }
    for (int l = L - 1; l >= 0; --l) {
        const auto window = model->blocks[l].unshard();
        auto gradients = accumulation->gradients(model->blocks[l]);
        const Tensors w = point_to(window, model->blocks[l], 2);
        const Tensors g = point_to(gradients, model->blocks[l], 2);
        const real* residual = l == 0 ? a.encoded : a.res3 + (l - 1) * BT * C;
        real* dresidual = l == 0 ? d.encoded : d.res3 + (l - 1) * BT * C;
        real* dres2 = d.res2 + l * BT * C;
        real* dres3 = d.res3 + l * BT * C;
        real* dln1 = d.ln1 + l * BT * C;
        real* dqkv = d.qkv + l * BT * 3 * C;
        real* datty = d.atty + l * BT * C;
        real* dln2 = d.ln2 + l * BT * C;
        real* dfch = d.fch + l * BT * 4 * C;
        real* dgelu = d.gelu + l * BT * 4 * C;
        for (int i = 0; i < BT * C; ++i) { dres2[i] += dres3[i]; }
        matmul_backward(dgelu, g.fcprojw, g.fcprojb, dres3, a.gelu + l * BT * 4 * C, w.fcprojw, BT, 4 * C, C);
        gelu_backward(dfch, a.fch + l * BT * 4 * C, dgelu, BT * 4 * C);
        matmul_backward(dln2, g.fcw, g.fcb, dfch, a.ln2 + l * BT * C, w.fcw, BT, C, 4 * C);
        layernorm_backward(dres2, g.ln2w, g.ln2b, dln2, a.res2 + l * BT * C, w.ln2w, a.ln2_mean + l * BT,
                           a.ln2_rstd + l * BT, BT, C);
        for (int i = 0; i < BT * C; ++i) { dresidual[i] += dres2[i]; }
        matmul_backward(datty, g.attprojw, g.attprojb, dres2, a.atty + l * BT * C, w.attprojw, BT, C, C);
        attention_backward(dqkv, model->dscore, datty, a.qkv + l * BT * 3 * C, a.att + l * B * NH * T * T, B, T, C,
                           NH);
        matmul_backward(dln1, g.qkvw, g.qkvb, dqkv, a.ln1 + l * BT * C, w.qkvw, BT, C, 3 * C);
        layernorm_backward(dresidual, g.ln1w, g.ln1b, dln1, residual, w.ln1w, a.ln1_mean + l * BT,
                           a.ln1_rstd + l * BT, BT, C);
        accumulation->add(std::move(gradients));
    }
    encoder_backward(embedding_g.wte, embedding_g.wpe, d.encoded, model->inputs, B, T, C);
    accumulation->add(std::move(embedding_gradients));
}

template <class Rank>
void train(Rank& rank, const sk::DynamicPolicy& policy, const Text& text, int steps) {
    const int B = ROWS / static_cast<int>(rank.world_size());
    auto model = model_build(rank, policy, B);
    sk::Model groups{model.embedding, model.blocks, model.last};
    sk::AdamW optimizer(groups, {.learning_rate = 1e-3, .beta2 = 0.95, .weight_decay = 0.1});
    for (int step = 0; step < steps; ++step) {
        load_batch(&text, model.inputs, model.targets, step, static_cast<int>(rank.rank()) * B, B, ROWS, T);
        sk::Accumulation accumulation(groups);
        model_forward(&model, ROWS * T);
        model_backward(&model, &accumulation);
        optimizer.step(sk::reduce(std::move(accumulation), sk::sum));
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, std::span(&model.loss, 1), rank.compute_stream());
        if (rank.rank() == 0) {
            std::printf("step %d loss %.15g\n", step, static_cast<double>(model.loss) / rank.world_size());
        }
    }
}

// `ranks` threads, or the processes of an MPI job: `mpi`.
template <class Train>
void launch(const char* ranks, const Train& train) {
    using Mesh = sk::DeviceMesh<sk::dynamic>;
    if (std::strcmp(ranks, "mpi") != 0) { return sk::threads::run(Mesh(std::strtoul(ranks, nullptr, 10)), train); }
#ifdef WITH_MPI
    const sk::mpi::Environment environment;
    sk::mpi::run(Mesh(sk::mpi::Environment::size()), train);
#else
    std::fprintf(stderr, "this program was compiled without -DWITH_MPI\n");
    std::exit(1);
#endif
}

int main(int argc, char** argv) {
    const Text text = read_text(argc > 1 ? argv[1] : "LICENSE");
    const int steps = argc > 2 ? std::atoi(argv[2]) : 40;
    const sk::DynamicPolicy policy = sk::named_policy(argc > 4 ? argv[4] : "full_shard");
    launch(argc > 3 ? argv[3] : "2", [&](auto& rank) { train(rank, policy, text, steps); });
}
