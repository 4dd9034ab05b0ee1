// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "gpu.hpp"
#include "kernels.hpp"
#include "launch.hpp"

namespace cuda_trainer {

/// Device pointers to parameters, or to their gradients. Matrices are row-major, [outputs, inputs].
template <class T>
struct EmbeddingWeights {
    T* table;  ///< [vocabulary, embedding]
    T* projection;
    T* bias;

    EmbeddingWeights<const T> read_only() const { return {table, projection, bias}; }
};

template <class T>
struct BlockWeights {
    T* expand;
    T* expand_bias;
    T* contract;
    T* contract_bias;

    BlockWeights<const T> read_only() const { return {expand, expand_bias, contract, contract_bias}; }
};

template <class T>
struct HeadWeights {
    T* logits;
    T* bias;

    HeadWeights<const T> read_only() const { return {logits, bias}; }
};

/// Of row-major matrices, which cuBLAS takes for their transposes: y [rows, outputs] = x [rows, inputs] * transpose
/// of w [outputs, inputs].
struct Extents {
    Extents(std::size_t r, std::size_t i, std::size_t o)
        : rows(static_cast<int>(r)), inputs(static_cast<int>(i)), outputs(static_cast<int>(o)) {}
    int rows;
    int inputs;
    int outputs;
};

/// c [n, m] = b * a + keep * c as cuBLAS sees them, k numbers of each in a sum.
template <class T>
void multiply(const Gpu& gpu, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k, const T* a,
              int lda, const T* b, int ldb, T keep, T* c) {
    const T one = 1;
    const auto call = [&](auto gemm) {
        check(gemm(gpu.blas, of_a, of_b, m, n, k, &one, a, lda, b, ldb, &keep, c, m), "gemm");
    };
    if constexpr (std::is_same_v<T, float>) {
        call(cublasSgemm);
    } else {
        call(cublasDgemm);
    }
}

template <class T>
void linear(const Gpu& gpu, Extents e, const T* x, const T* w, T* y) {
    multiply(gpu, CUBLAS_OP_T, CUBLAS_OP_N, e.outputs, e.rows, e.inputs, w, e.inputs, x, e.inputs, T{0}, y);
}
/// dx = dy * w + keep * dx
template <class T>
void linear_backward_input(const Gpu& gpu, Extents e, const T* dy, const T* w, T keep, T* dx) {
    multiply(gpu, CUBLAS_OP_N, CUBLAS_OP_N, e.inputs, e.rows, e.outputs, w, e.inputs, dy, e.outputs, keep, dx);
}
/// dw += transpose of dy * x
template <class T>
void linear_backward_weight(const Gpu& gpu, Extents e, const T* dy, const T* x, T* dw) {
    multiply(gpu, CUBLAS_OP_N, CUBLAS_OP_T, e.inputs, e.outputs, e.rows, x, e.inputs, dy, e.outputs, T{1}, dw);
}

/// The model's forward and backward pass, on raw device pointers and in the order of the GPU's stream. It holds the
/// activations of one batch; parameters and gradients are somebody else's. Gradients are added to.
template <class T>
class Network {
  public:
    Network(const Gpu& gpu, const Shape& shape, std::size_t batch)
        : gpu_(gpu),
          shape_(shape),
          batch_(batch),
          embedded_(batch * shape.inputs(), gpu.stream),
          outputs_((shape.layers + 1) * batch * shape.width, gpu.stream),
          before_gelu_(shape.layers * batch * shape.hidden(), gpu.stream),
          after_gelu_(shape.layers * batch * shape.hidden(), gpu.stream),
          logits_(batch * Shape::vocabulary, gpu.stream),
          losses_(batch, gpu.stream),
          d_output_(batch * shape.width, gpu.stream),
          d_hidden_(batch * shape.hidden(), gpu.stream),
          d_embedded_(batch * shape.inputs(), gpu.stream) {}

    void embed(const EmbeddingWeights<const T>& w, const Batch& batch) {
        run(embedded_.size(), kernels::Embed<T>{batch, shape_.embedding, w.table, embedded_.data()});
        linear(gpu_, {batch_, shape_.inputs(), shape_.width}, embedded_.data(), w.projection, output(0));
        run(batch_ * shape_.width, kernels::AddBias<T>{w.bias, shape_.width, output(0)});
    }
    void embed_backward(const EmbeddingWeights<const T>& w, const EmbeddingWeights<T>& g, const Batch& batch) {
        const Extents extents{batch_, shape_.inputs(), shape_.width};
        run(shape_.width, kernels::BiasBackward<T>{d_output_.data(), batch_, shape_.width, g.bias});
        linear_backward_weight(gpu_, extents, d_output_.data(), embedded_.data(), g.projection);
        linear_backward_input(gpu_, extents, d_output_.data(), w.projection, T{0}, d_embedded_.data());
        run(shape_.table(), kernels::EmbedBackward<T>{batch, shape_.embedding, d_embedded_.data(), g.table});
    }

    void block(std::size_t l, const BlockWeights<const T>& w) {
        linear(gpu_, up(), output(l), w.expand, before_gelu(l));
        run(batch_ * shape_.hidden(),
            kernels::BiasGelu<T>{w.expand_bias, shape_.hidden(), before_gelu(l), after_gelu(l)});
        linear(gpu_, down(), after_gelu(l), w.contract, output(l + 1));
        run(batch_ * shape_.width,
            kernels::AddBiasAndInput<T>{w.contract_bias, shape_.width, output(l), output(l + 1)});
    }
    void block_backward(std::size_t l, const BlockWeights<const T>& w, const BlockWeights<T>& g) {
        T* const d_output = d_output_.data();
        T* const d_hidden = d_hidden_.data();
        run(shape_.width, kernels::BiasBackward<T>{d_output, batch_, shape_.width, g.contract_bias});
        linear_backward_weight(gpu_, down(), d_output, after_gelu(l), g.contract);
        linear_backward_input(gpu_, down(), d_output, w.contract, T{0}, d_hidden);
        run(d_hidden_.size(), kernels::GeluBackward<T>{before_gelu(l), d_hidden});
        run(shape_.hidden(), kernels::BiasBackward<T>{d_hidden, batch_, shape_.hidden(), g.expand_bias});
        linear_backward_weight(gpu_, up(), d_hidden, output(l), g.expand);
        linear_backward_input(gpu_, up(), d_hidden, w.expand, T{1}, d_output);
    }

    /// Forward and backward. `weight`: of a sample in the mean. Adds the mean to *loss.
    void head(const HeadWeights<const T>& w, const HeadWeights<T>& g, const Batch& batch, T weight, T* loss) {
        const Extents extents{batch_, shape_.width, Shape::vocabulary};
        T* const logits = logits_.data();
        linear(gpu_, extents, output(shape_.layers), w.logits, logits);
        run(logits_.size(), kernels::AddBias<T>{w.bias, Shape::vocabulary, logits});
        run(batch_, kernels::SoftmaxCrossEntropy<T>{batch, Shape::vocabulary, weight, logits, losses_.data()});
        run(1, kernels::AddLoss<T>{losses_.data(), batch_, weight, loss});
        run(Shape::vocabulary, kernels::BiasBackward<T>{logits, batch_, Shape::vocabulary, g.bias});
        linear_backward_weight(gpu_, extents, logits, output(shape_.layers), g.logits);
        linear_backward_input(gpu_, extents, logits, w.logits, T{0}, d_output_.data());
    }

  private:
    template <class Work>
    void run(std::size_t count, const Work& work) const {
        launch(gpu_.stream, count, work);
    }
    Extents up() const { return {batch_, shape_.width, shape_.hidden()}; }
    Extents down() const { return {batch_, shape_.hidden(), shape_.width}; }
    T* output(std::size_t l) const { return outputs_.data() + l * batch_ * shape_.width; }
    T* before_gelu(std::size_t l) const { return before_gelu_.data() + l * batch_ * shape_.hidden(); }
    T* after_gelu(std::size_t l) const { return after_gelu_.data() + l * batch_ * shape_.hidden(); }

    const Gpu& gpu_;
    Shape shape_;
    std::size_t batch_;
    DeviceArray<T> embedded_, outputs_, before_gelu_, after_gelu_, logits_, losses_;
    DeviceArray<T> d_output_, d_hidden_, d_embedded_;
};

}  // namespace cuda_trainer
