// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <forward_list>
#include <string>
#include <string_view>

namespace shardkit {

/// The names of a rank's communicators, each once. They stay where they are, because communicators point at them.
class KeptLabels {
  public:
    /// The kept copy of `axes`.
    const std::string& keep(std::string_view axes) {
        for (const std::string& label : labels_) {
            if (label == axes) { return label; }
        }
        return labels_.emplace_front(axes);
    }

  private:
    std::forward_list<std::string> labels_;
};

}  // namespace shardkit
