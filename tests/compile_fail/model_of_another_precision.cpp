// SPDX-License-Identifier: Apache-2.0
// expected-error: Model<Precision>: a group has another precision; name it, or Precisions<...> of all
#include "model.hpp"

using Doubled = sk::Sharded<Linear, sk::FullShard, sk::Precision<float, float, double>>;

#ifdef REJECT
using Both = sk::Model<>;
#else
using Both = sk::Model<sk::Precisions<sk::DefaultPrecision<float>, sk::Precision<float, float, double>>>;
#endif
void collect(Layer& a, Doubled& b) { Both model{a, b}; }
