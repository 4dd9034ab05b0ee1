// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include "../train_gpt/device/place.hpp"
#include "../train_gpt/model/pass.hpp"
#ifdef __CUDACC__  // a test's launches are loops
#include "launch.cuh"
#endif

namespace cuda_trainer {

struct StreamLaunch {
    cudaStream_t stream;

    template <class Work>
    void operator()(std::size_t n, const Work& work) const {
        launch(stream, n, work);
    }
};
using Place = train_gpt::DevicePlaceOf<StreamLaunch>;
using Pass = train_gpt::Pass<float, Place>;

struct Network::OnDevice {
    OnDevice(cudaStream_t stream, const train_gpt::ModelConfig& config, train_gpt::BatchShape of_batch)
        : batch(of_batch),
          workspace(std::size_t{4} << 20U, stream),
          products(stream, {workspace.data(), workspace.size()}),
          place({stream}, products),
          memory(Pass::bytes(config, {}, batch, place), stream),
          arena(memory.data(), memory.size()),
          pass(config, {}, batch, links, arena, place) {}

    train_gpt::BatchShape batch;
    DeviceArray<std::uint8_t> workspace;
    train_gpt::DeviceProducts products;
    Place place;
    DeviceArray<std::byte> memory;
    train_gpt::Arena arena;
    train_gpt::Links<float> links;
    Pass pass;
};

Network::Network(cudaStream_t stream, const train_gpt::ModelConfig& config, train_gpt::BatchShape batch)
    : on_device_(std::make_shared<OnDevice>(stream, config, batch)) {}

void Network::embed(const EmbeddingWeights<const float*>& w, const Token* tokens) {
    on_device_->pass.embed(on_device_->batch, w, tokens);
}
void Network::block(std::size_t layer, const BlockWeights<const float*>& w) { on_device_->pass.block(layer, w); }
void Network::head(const HeadWeights<const float*>& w, const HeadWeights<float*>& d, Into into, const Token* targets,
                   double scale, double* loss) {
    on_device_->pass.head(w);
    on_device_->pass.loss(targets, scale, loss);
    on_device_->pass.head_backward(w, d, into);
}
void Network::block_backward(std::size_t layer, const BlockWeights<const float*>& w, const BlockWeights<float*>& d,
                             Into into) {
    on_device_->pass.block_backward(layer, w, d, into);
}
void Network::embed_backward(const Token* tokens, const EmbeddingWeights<float*>& d) {
    on_device_->pass.embed_backward(tokens, d);
}

template void launch(cudaStream_t, std::size_t, const CopyTokens&);

}  // namespace cuda_trainer
