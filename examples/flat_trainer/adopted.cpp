// SPDX-License-Identifier: Apache-2.0
// by_hand.cpp with a library's ZeRO-1: shardkit adopts the packed allocations, and the model is before.cpp's.
// g++ -std=c++20 -Ofast -march=native -fopenmp -Iinclude examples/flat_trainer/adopted.cpp -o adopted
// ./adopted LICENSE 40 2            -DWITH_MPI, mpicxx: mpirun -n 2 ./adopted LICENSE 40 mpi
#include <shardkit/shardkit.hpp>
#ifdef WITH_MPI
#include <shardkit/mpi.hpp>
#endif

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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
// Points to the tensors that lie one behind the other in `memory`.
Tensors point_to(real* memory) {
    real* each[NUM_TENSORS];
    for (int i = 0; i < NUM_TENSORS; ++i) {
        each[i] = memory;
        memory += tensor_sizes[i];
    }
    Tensors tensors;
    std::memcpy(&tensors, each, sizeof tensors);
    return tensors;
}
// A layer's slice of the stacked ones.
Tensors layer_of(Tensors tensors, int l) {
    real* each[NUM_TENSORS];
    std::memcpy(each, &tensors, sizeof tensors);
    for (int i = 2; i < 14; ++i) { each[i] += tensor_sizes[i] / L * l; }
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
    real* params_memory;
    Tensors params;
    real* grads_memory;
    Tensors grads;
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

// `n`: elements of the allocations, behind whose tensors there may be padding.
void model_build(Model* model, int B, size_t n) {
    model->B = B;
    model->params_memory = zeros(n);
    model->params = point_to(model->params_memory);
    initialize(model->params_memory);
    model->grads_memory = zeros(n);
    model->grads = point_to(model->grads_memory);

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
}

// Of `all` tokens of a step, this model has B * T.
void model_forward(Model* model, int all) {
    const int B = model->B;
    const int BT = B * T;
    const Activations a = model->acts;
    encoder_forward(a.encoded, model->inputs, model->params.wte, model->params.wpe, B, T, C);
    for (int l = 0; l < L; ++l) {
        const Tensors w = layer_of(model->params, l);
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
    layernorm_forward(a.lnf, a.lnf_mean, a.lnf_rstd, last, model->params.lnfw, model->params.lnfb, BT, C);
    matmul_forward(a.logits, a.lnf, model->params.wte, nullptr, BT, C, V);
    std::memcpy(model->dacts.logits, a.logits, sizeof(real) * BT * V);
    model->loss = crossentropy(model->dacts.logits, model->targets, BT, V, all);
}

void model_backward(Model* model) {
    const int B = model->B;
    const int BT = B * T;
    const Activations a = model->acts;
    const Activations d = model->dacts;
    std::memset(model->dacts_memory, 0, sizeof(real) * (model->num_acts - BT * V));  // but the logits'
    real* dlast = d.res3 + (L - 1) * BT * C;
    matmul_backward(d.lnf, model->grads.wte, nullptr, d.logits, a.lnf, model->params.wte, BT, C, V);
    layernorm_backward(dlast, model->grads.lnfw, model->grads.lnfb, d.lnf, a.res3 + (L - 1) * BT * C,
                       model->params.lnfw, a.lnf_mean, a.lnf_rstd, BT, C);
    for (int l = L - 1; l >= 0; --l) {
        const Tensors w = layer_of(model->params, l);
        const Tensors g = layer_of(model->grads, l);
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
    }
    encoder_backward(model->grads.wte, model->grads.wpe, d.encoded, model->inputs, B, T, C);
}

template <class Rank>
void train(Rank& rank, const Text& text, int steps) {
    const int B = ROWS / static_cast<int>(rank.world_size());
    using Flat = sk::Sharded<sk::TensorList<real>, sk::ShardOptimizer>;
    const sk::TensorList<real> tensors(tensor_names, tensor_sizes);
    const size_t n = Flat::buffer_numel(rank, "gpt2", tensors);
    Model model;
    model_build(&model, B, n);
    auto flat = Flat::adopt(rank, "gpt2", tensors, {{model.params_memory, n}, {model.grads_memory, n}});
    sk::Model groups{flat};
    sk::AdamW optimizer(groups, {.learning_rate = 1e-3, .beta2 = 0.95, .weight_decay = 0.1});
    for (int step = 0; step < steps; ++step) {
        load_batch(&text, model.inputs, model.targets, step, static_cast<int>(rank.rank()) * B, B, ROWS, T);
        sk::Accumulation accumulation(groups);
        auto window = flat.unshard();                   // all-gathers into params_memory
        auto gradients = accumulation.gradients(flat);  // grads_memory, zeroed
        model_forward(&model, ROWS * T);
        model_backward(&model);
        flat.reshard(std::move(window));
        accumulation.add(std::move(gradients));  // reduce-scatters grads_memory
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
    launch(argc > 3 ? argv[3] : "2", [&](auto& rank) { train(rank, text, steps); });
}
