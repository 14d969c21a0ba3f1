#pragma once

#include "baton/model/model.h"
#include "baton/model/model_name.h"

namespace baton::model {

/// The model of this name, e.g. `mlp:dim=1024,depth=2`, `mlp:1000-2000-1000`, `gpt2`, `gpt2:context=128`, `./folder`,
/// `./folder:context=128` or `./file.onnx`; a usage error says what would be accepted. Of folders only the configuration is read.
Model parse_model(const ModelName& name);

}  // namespace baton::model
