// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../common/input_file.hpp"
#include "gpu.hpp"
#include "job.hpp"
#include "kernels.hpp"
#include "launch.hpp"
#include "options.hpp"

namespace cuda_trainer {

/// What the options name.
/// @throws InputError when it cannot be read, or is too short for one sample
inline std::vector<std::uint8_t> read_text(const Options& options) {
    const std::string text = program::bytes_of(program::open_file("--text", options.text));
    if (text.size() <= options.shape.context) {
        throw InputError("--text ", options.text, ": it has ", text.size(), " bytes, expected at least ",
                         options.shape.context + 1, ", one more than --context");
    }
    return {text.begin(), text.end()};
}

/// The text, and this rank's batches of one step: they lie at the same addresses in every step.
class Inputs {
  public:
    Inputs(const Gpu& gpu, const Options& options, const Job& job, const std::vector<std::uint8_t>& text)
        : stream_(gpu.stream),
          step_(options.batch),
          ranks_(job.ranks),
          rank_(job.rank),
          batch_(options.batch / (job.ranks * options.microbatches)),
          context_(options.shape.context),
          text_(text.size(), gpu.stream),
          batches_(options.microbatches * batch_ * (context_ + 1), gpu.stream),
          samples_{text_.data(), text.size() - context_, options.seed} {
        upload(stream_, text_.data(), text.data(), text.size());
    }

    /// Copies the step's samples into the batches, in the order of the stream.
    void load(std::size_t step) const {
        launch(stream_, batches_.size(),
               kernels::CopySamples{.samples = samples_,
                                    .first = step * step_ + rank_ * batch_,
                                    .stride = ranks_ * batch_,
                                    .size = batch_,
                                    .bytes = context_ + 1,
                                    .to = batches_.data()});
    }
    Batch batch(std::size_t microbatch) const {
        return {batches_.data() + microbatch * batch_ * (context_ + 1), context_, batch_};
    }
    /// Samples of a batch.
    std::size_t samples() const { return batch_; }

  private:
    cudaStream_t stream_;
    std::size_t step_, ranks_, rank_, batch_, context_;
    DeviceArray<std::uint8_t> text_, batches_;
    Samples samples_;
};

}  // namespace cuda_trainer
